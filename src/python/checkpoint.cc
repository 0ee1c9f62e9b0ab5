// Checkpoints and the folders of Hugging Face as Python opens and writes them.
#include "headroom/store/checkpoint.h"

#include "headroom/config/config.h"
#include "headroom/config/model_options.h"
#include "headroom/store/huggingface.h"
#include "headroom/store/run_folder.h"
#include "layer.h"
#include "refusal.h"
#include "tokenizer.h"

namespace headroom::python {
namespace {

namespace fs = std::filesystem;

using Tensors = std::vector<at::Tensor>;
using MaybeTokenizer = std::optional<c10::intrusive_ptr<Tokenizer>>;

// The model's kind, its description and parameters in the order that the layer takes them in; then what
// write_checkpoint() wants to know again: the config (TOML), the step and the tokenizer.
using Opened = std::tuple<std::string, std::string, Tensors, std::string, std::int64_t, MaybeTokenizer>;

Opened read_checkpoint(const std::string& run_or_checkpoint) {
  const store::Checkpoint checkpoint = store::read_checkpoint(store::find_checkpoint(run_or_checkpoint));
  const std::string description = describe({.kind = "model", .model = checkpoint.config.model});
  nn::Parameters parameters;
  make_parameters(layer_of(description), parameters, nn::Beginning(0, at::TensorOptions(at::kFloat).device(at::kMeta)));
  Tensors values;
  for (const nn::Parameter& parameter : parameters.made()) {
    values.push_back(checkpoint.tensors.at("model." + parameter.name).clone());  // theirs are views of the file
  }
  MaybeTokenizer tokenizer;
  if (checkpoint.tokenizer) {
    tokenizer = c10::make_intrusive<Tokenizer>(checkpoint.tokenizer);
  }
  return {std::string(config::name_of(checkpoint.config.model.kind)),
          description,
          values,
          config::to_toml(checkpoint.config),
          checkpoint.step,
          tokenizer};
}

// The tokenizer's part of a config; throws UserError where it does not go with the model.
void check_tokenizer(const tokenizers::Tokenizer* tokenizer, config::Config& config) {
  const config::ModelOptions& model = config.model;
  if (model.has_classes()) {
    if (tokenizer != nullptr) {
      user_error("save_checkpoint: a model that chooses a class takes no tokenizer");
    }
    return;
  }
  if (tokenizer == nullptr) {
    user_error("save_checkpoint: tokenizer must be given: the model came without one");
  }
  const std::int64_t special = config::n_special_tokens(model.kind), known = tokenizer->vocabulary_size() + special;
  if (known != model.vocabulary_size) {
    user_error("save_checkpoint: tokenizer must have the {} tokens of the model's vocabulary_size, got {} with {}",
               model.vocabulary_size - special, tokenizer->name(), tokenizer->vocabulary_size());
  }
  tokenizers::require_source_vocabulary(*tokenizer, model.source_vocabulary_size, "save_checkpoint");
  config.tokenizer.kind = tokenizer->kind();
  config.tokenizer.vocabulary_size = tokenizer->vocabulary_size();
  config.tokenizer.model.clear();  // the checkpoint holds it
  config.tokenizer.source_model.clear();
}

// `config`: as read_checkpoint() gave it, or empty.
config::Config config_of(const Layer& layer, const std::string& config) {
  config::Config all;
  if (config.empty()) {
    all.train.precision = config::Precision::fp32;  // the logits are to be those of Python, on any machine
    all.tokenizer.vocabulary_size = layer.model.vocabulary_size;
  } else {
    all = config::parse_config(config, "save_checkpoint");
  }
  all.model = layer.model;
  return all;
}

void write_checkpoint(const std::string& path, const std::string& description, const Tensors& values,
                      const std::string& config, std::int64_t step, const MaybeTokenizer& tokenizer) {
  const Layer& layer = layer_of(description);
  store::Checkpoint checkpoint;
  checkpoint.config = config_of(layer, config);
  checkpoint.step = step;
  checkpoint.tokenizer = tokenizer ? (*tokenizer)->engine : nullptr;
  check_tokenizer(checkpoint.tokenizer.get(), checkpoint.config);
  config::check(checkpoint.config, "save_checkpoint");
  nn::Parameters parameters;
  make_parameters(layer, parameters, nn::Beginning(values));
  for (const nn::Parameter& parameter : parameters.made()) {
    checkpoint.tensors.emplace("model." + parameter.name, parameter.tensor.detach().to(at::kFloat));
  }
  store::save_checkpoint(checkpoint, path);
}

// `headroom import` of a folder with a config.json, `headroom checkpoint export` of a run or checkpoint. The
// model_type.
std::string convert(const std::string& source, const std::string& target, const std::string& tokenizer) {
  std::error_code ignored;
  if (fs::exists(fs::path(source) / "config.json", ignored)) {
    const store::Imported imported = store::import_huggingface(source, tokenizer);
    store::save_checkpoint(imported.checkpoint, target);
    return imported.kind;
  }
  if (!tokenizer.empty()) {
    user_error("convert: tokenizer: belongs to a folder with a config.json, but {} has none", source);
  }
  const fs::path file = store::find_checkpoint(source);
  return store::export_huggingface(store::read_checkpoint(file), target, file.string());
}

void export_tokenizer(const c10::intrusive_ptr<Tokenizer>& tokenizer, std::int64_t context_length,
                      const std::string& folder) {
  store::export_tokenizer(*tokenizer->engine, context_length, folder);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  offer_tokenizer(library);
  library.def("read_checkpoint", refusing(read_checkpoint));
  library.def("write_checkpoint", refusing(write_checkpoint));
  library.def("convert", refusing(convert));
  library.def("export_tokenizer", refusing(export_tokenizer));
}

}  // namespace headroom::python
