#include <algorithm>
#include <set>

#include "architecture.h"
#include "folder.h"
#include "foundation/core/machine/log.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/huggingface.h"

namespace headroom::store {
namespace {

const Architecture& architecture_of(const Settings& settings) {
  const std::string kind = settings.text("model_type", "");
  std::string known;
  for (const Architecture* architecture : architectures()) {
    for (const std::string_view one : architecture->kinds()) {
      if (one == kind) {
        return *architecture;
      }
      known += (known.empty() ? "" : ", ") + std::string(one);
    }
  }
  settings.refuse("model_type", "must be one of " + known);
}

// The names of a folder's tensors: base models are saved without the prefix.
class TensorNames {
 public:
  TensorNames(const ModelFolder& folder, std::string_view prefix) : prefix_(prefix) {
    const std::vector<std::string> names = folder.names();
    without_ =
        std::none_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(prefix_); });
  }
  std::string operator()(const std::string& name) const {
    return without_ && name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
  }

 private:
  std::string prefix_;
  bool without_;
};

using Tensors = std::map<std::string, at::Tensor>;

// Every link's parameter in float32.
Tensors read_parameters(const ModelFolder& folder, const std::vector<Link>& links, const TensorNames& names) {
  Tensors parameters;
  for (const Link& link : links) {
    const std::string name = names(link.tensor);
    const bool absent = link.may_be_absent && !folder.contains(name);
    const at::Tensor stored = absent ? at::zeros(link.stored) : folder.at(name, link.stored);
    // Copied in any case: the folder's files are not to be needed later.
    const at::Tensor parameter = at::empty(link.in(stored).sizes(), at::TensorOptions(at::kFloat));
    parameters["model." + link.parameter] = parameter.copy_(link.in(stored));
  }
  return parameters;
}

// A tensor that no link names would be left out of the model.
void require_all_used(const ModelFolder& folder, const std::vector<Link>& links, const TensorNames& names,
                      const Architecture& architecture) {
  std::set<std::string> used;
  for (const Link& link : links) {
    used.insert(names(link.tensor));
  }
  for (const std::string& name : folder.names()) {
    const auto says_nothing = [&](std::string_view end) { return name.ends_with(end); };
    if (!used.contains(name) &&
        std::none_of(architecture.ignored().begin(), architecture.ignored().end(), says_nothing)) {
      user_error("{}: tensor \"{}\" has no equivalent", folder.origin(), name);
    }
  }
}

// A tied head that is stored nevertheless must be the embedding.
void drop_tied_head(const ModelFolder& folder, const Tensors& parameters, const config::ModelOptions& o,
                    std::vector<Link>& links) {
  for (const char* head : {"lm_head.weight", "embed_out.weight"}) {
    if (o.tied_embeddings && folder.contains(head)) {
      const at::Tensor stored = folder.at(head, {o.vocabulary_size, o.d_model}).to(at::kFloat);
      if (!stored.equal(parameters.at("model.embed"))) {
        user_error("{}: tensor \"{}\" is not the embedding, but config.json says tie_word_embeddings", folder.origin(),
                   head);
      }
      links.push_back({.parameter = "embed", .tensor = head, .stored = {}, .view = {}, .part = {}, .order = {}});
    }
  }
}

std::shared_ptr<const tokenizers::Tokenizer> read_tokenizer(const std::filesystem::path& path,
                                                            const config::ModelOptions& o) {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = tokenizers::load_tokenizer(path, o.vocabulary_size);
  if (tokenizer->vocabulary_size() != o.vocabulary_size) {
    user_error("{}: its tokenizer {} has {} tokens, but vocab_size is {} in config.json", path.string(),
               tokenizer->name(), tokenizer->vocabulary_size(), o.vocabulary_size);
  }
  return tokenizer;
}

bool was_trained_here(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / kWeightsFile, ignored) &&
         SafetensorsFile(folder / kWeightsFile).metadata().contains(kTrainedHere);
}

}  // namespace

Imported import_huggingface(const std::filesystem::path& folder, const std::filesystem::path& tokenizer) {
  const std::filesystem::path path = folder / "config.json";
  const SortedJson document = parse_sorted_json(read_text_file(path), path.string());
  const Settings settings(document, path.string());
  settings.require("quantization_config", false);
  const Architecture& architecture = architecture_of(settings);

  Imported imported;
  imported.kind = settings.text("model_type", "");
  config::Config& config = imported.checkpoint.config;
  config.model = architecture.read(settings);
  config::check(config.model, path.string());

  const ModelFolder files(folder);
  if (config.model.n_layers > std::ssize(files.names())) {
    user_error("{}: asks for {} layers, but {} has only {} tensors", path.string(), config.model.n_layers,
               files.origin(), files.names().size());
  }
  const TensorNames names(files, architecture.prefix());
  std::vector<Link> links = architecture.links(config.model);
  imported.checkpoint.tensors = read_parameters(files, links, names);
  drop_tied_head(files, imported.checkpoint.tensors, config.model, links);
  require_all_used(files, links, names, architecture);

  imported.checkpoint.tokenizer = read_tokenizer(tokenizer.empty() ? folder : tokenizer, config.model);
  if (!was_trained_here(folder)) {
    keep_special_tokens(read_special_tokens(folder, document, *imported.checkpoint.tokenizer), imported.checkpoint);
  }
  config.tokenizer.kind = imported.checkpoint.tokenizer->kind();
  config.tokenizer.vocabulary_size = config.model.vocabulary_size;
  config.train.precision = config::Precision::fp32;  // the logits are to be those of the original, on any machine
  return imported;
}

}  // namespace headroom::store
