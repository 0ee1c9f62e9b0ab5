#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "architecture.h"
#include "engine/store/checkpoint_reader.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/huggingface.h"

namespace headroom::store {
namespace {

constexpr const char* kOwnKind = "headroom";  // the model_type of HeadroomForCausalLM

SortedJson read_document(const std::filesystem::path& path) {
  if (std::error_code ignored; std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path)) {
    user_error("{}: is not a regular file", path.string());  // an empty pipe would be reported as corrupt
  }
  return parse_sorted_json(read_text_file(path), path.string());
}

// The safetensors files of a folder as one set of tensors.
class ModelFolder {
 public:
  // Opens model.safetensors, or the shards that model.safetensors.index.json names. Throws UserError.
  explicit ModelFolder(const std::filesystem::path& folder);

  bool contains(const std::string& name) const { return files_.contains(name); }
  std::vector<std::string> names() const;
  // Returns a view in the file's type. Throws UserError unless the tensor exists, is floating-point and finite, and has
  // `shape`.
  at::Tensor at(const std::string& name, const std::vector<std::int64_t>& shape) const;
  // Returns the same for a tensor of any shape.
  at::Tensor at(const std::string& name) const;
  const std::string& origin() const { return origin_; }

 private:
  void open(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& index);

  std::string origin_;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files_;  // keyed by tensor name
};

ModelFolder::ModelFolder(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path whole = folder / kWeightsFile, index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(whole, ignored)) {
    origin_ = whole.string();
    open(whole);
  } else if (std::filesystem::exists(index, ignored)) {
    origin_ = index.string();
    open_shards(index);
  } else {
    user_error("{}: holds neither model.safetensors nor model.safetensors.index.json; other formats are not supported",
               folder.string());
  }
}

void ModelFolder::open(const std::filesystem::path& path) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  for (const auto& [name, stored] : file->tensors()) {
    if (!files_.emplace(name, file).second) {
      user_error("{}: tensor \"{}\" is also in another shard", path.string(), name);
    }
  }
}

void ModelFolder::open_shards(const std::filesystem::path& index) {
  const SortedJson document = read_document(index);
  if (!document.is_object() || !document.contains("weight_map") || !document.at("weight_map").is_object()) {
    user_error("{}: weight_map must be an object of tensor and file names", origin_);
  }
  std::set<std::string> shards;
  for (const auto& [name, shard] : document.at("weight_map").items()) {
    const std::string file = shard.is_string() ? shard.get<std::string>() : std::string();
    if (file.empty() || file == "." || file == ".." || file.find_first_of("/\\") != std::string::npos) {
      user_error("{}: weight_map: the file of \"{}\" must be in this folder", origin_, name);
    }
    shards.insert(file);
  }
  for (const std::string& shard : shards) {
    open(index.parent_path() / shard);
  }
  for (const auto& [name, shard] : document.at("weight_map").items()) {
    const auto found = files_.find(name);
    if (found == files_.end() || found->second->path().filename() != shard.get<std::string>()) {
      user_error("{}: weight_map: {} has no tensor \"{}\"", origin_, shard.get<std::string>(), name);
    }
  }
}

std::vector<std::string> ModelFolder::names() const {
  std::vector<std::string> all = transformed(files_, [](const auto& entry) { return entry.first; });
  return all;
}

at::Tensor ModelFolder::at(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    user_error("{}: tensor \"{}\" is missing, but config.json requires it", origin_, name);
  }
  const StoredTensor& stored = found->second->at(name);
  if (stored.shape != shape) {
    user_error("{}: tensor \"{}\" has the shape [{}], but config.json requires [{}]", found->second->path().string(),
               name, fmt::join(stored.shape, ", "), fmt::join(shape, ", "));
  }
  return at(name);
}

at::Tensor ModelFolder::at(const std::string& name) const {
  const auto found = files_.find(name);
  const StoredTensor& stored = found->second->at(name);
  at::Tensor tensor = view_of(found->second, name, stored);
  if (!tensor.is_floating_point()) {
    user_error("{}: tensor \"{}\" has type {}, but must be F64, F32, F16 or BF16", found->second->path().string(), name,
               name_of(stored.dtype));
  }
  if (!at::isfinite(tensor.to(at::kFloat)).all().item<bool>()) {
    user_error("{}: tensor \"{}\" has values that are not finite in float32", found->second->path().string(), name);
  }
  return tensor;
}

const Architecture& architecture_of(const Settings& settings) {
  const std::string kind = settings.text("model_type", "");
  std::string known;
  for (const Architecture* architecture : architectures()) {
    for (const ModelType& one : architecture->names().kinds) {
      if (one.name == kind) {
        return *architecture;
      }
      known += std::string(one.name) + ", ";
    }
  }
  settings.refuse("model_type", fmt::format("must be one of {}{}", known, kOwnKind));
}

// The names of tensors in a folder: without the prefix if it contains a base model, and with the head's other name if
// another version of transformers wrote it.
class TensorNames {
 public:
  TensorNames(const ModelFolder& folder, const ArchitectureNames& names) : folder_(folder), names_(names) {
    const std::vector<std::string> all = folder.names();
    without_ = std::ranges::none_of(all, [&](const std::string& name) { return name.starts_with(names_.prefix); });
  }
  std::string operator()(const std::string& name) const {
    if (const std::string other = names_.other_head + ".weight";
        name == names_.head + ".weight" && !folder_.contains(name) && folder_.contains(other)) {
      return other;
    }
    return without_ && name.starts_with(names_.prefix) ? name.substr(names_.prefix.size()) : name;
  }

 private:
  const ModelFolder& folder_;
  const ArchitectureNames& names_;
  bool without_;
};

using Tensors = std::map<std::string, at::Tensor>;

// Returns all parameters; matrices stored in half precision stay in half precision.
Tensors read_parameters(const ModelFolder& folder, const std::vector<Mapping>& mappings, const TensorNames& names) {
  Tensors parameters;
  for (const Mapping& mapping : mappings) {
    // Always copied, so that the folder's files are not needed later.
    mapping.read(folder.at(names(mapping.tensor), mapping.stored), parameters["model." + mapping.parameter]);
  }
  return parameters;
}

// Throws UserError unless each tensor that the folder holds repeats its parameter, or consists of identity matrices.
void require_redundant(const ModelFolder& folder, const std::vector<Mapping>& redundant, const TensorNames& names,
                       const Tensors& parameters) {
  for (const Mapping& mapping : redundant) {
    const std::string name = names(mapping.tensor);
    if (!folder.contains(name)) {
      continue;
    }
    const at::Tensor values = mapping.parameter_of(folder.at(name, mapping.stored).to(at::kFloat));
    if (mapping.parameter.empty()) {
      if (!values.eq(at::eye(values.size(-1))).all().item<bool>()) {
        user_error("{}: tensor \"{}\" has no equivalent: it must be the identity matrix", folder.origin(), name);
      }
    } else if (!values.equal(parameters.at("model." + mapping.parameter).to(at::kFloat))) {
      user_error(
          "{}: tensor \"{}\" must repeat the values of other tensors, but differs from them; save all of them again",
          folder.origin(), name);
    }
  }
}

// Throws UserError for a tensor that no parameter uses. Tensors without parameters may be in the model's layers only.
void require_all_used(const ModelFolder& folder, const std::vector<Mapping>& mappings,
                      const std::vector<Mapping>& redundant, const TensorNames& names,
                      const ArchitectureNames& architecture) {
  std::set<std::string> used, layers;
  const std::string prefix = names(architecture.layers);
  for (const Mapping& mapping : mappings) {
    const std::string name = names(mapping.tensor);
    used.insert(name);
    if (name.starts_with(prefix)) {
      layers.insert(name.substr(0, name.find('.', prefix.size())));
    }
  }
  for (const Mapping& mapping : redundant) {
    used.insert(names(mapping.tensor));
  }
  const auto is_ignored = [&](const std::string& name) {
    return std::ranges::any_of(architecture.ignored, [&](std::string_view end) { return name.ends_with(end); }) &&
           layers.contains(name.substr(0, name.find('.', prefix.size())));
  };
  for (const std::string& name : folder.names()) {
    if (!used.contains(name) && !is_ignored(name)) {
      user_error("{}: tensor \"{}\" has no equivalent", folder.origin(), name);
    }
  }
}

// With tied embeddings, a stored head must equal the embedding.
void drop_tied_head(const ModelFolder& folder, const Tensors& parameters, const config::ModelOptions& o,
                    std::vector<Mapping>& mappings) {
  for (const char* head : {"lm_head.weight", "embed_out.weight"}) {
    if (o.tied_embeddings && folder.contains(head)) {
      const at::Tensor stored = folder.at(head, {o.vocabulary_size, o.d_model}).to(at::kFloat);
      if (!stored.equal(parameters.at("model.embed").to(at::kFloat))) {
        user_error("{}: tensor \"{}\" differs from the embedding, but config.json sets tie_word_embeddings",
                   folder.origin(), head);
      }
      mappings.push_back({.parameter = "embed", .tensor = head, .stored = {}});
    }
  }
}

// Returns a tokenizer with `size` ids: the byte values, then spare ids without text.
std::shared_ptr<const tokenizers::Tokenizer> bytes_tokenizer(std::int64_t size, const std::string& origin) {
  std::string bytes;  // empty: all
  for (std::int64_t byte = 0; byte < size && size < config::kByteValues; ++byte) {
    bytes.push_back(static_cast<char>(byte));
  }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer =
      tokenizers::restore_tokenizer(config::TokenizerKind::bytes, bytes, origin);
  if (size <= config::kByteValues) {
    return tokenizer;
  }
  Json json = parse_json(tokenizers::to_tokenizer_json(*tokenizer), origin);
  json["spare_ids"] = size - config::kByteValues;
  return tokenizers::restore_tokenizer(config::TokenizerKind::bpe, json.dump(), origin);
}

std::shared_ptr<const tokenizers::Tokenizer> read_tokenizer(const std::filesystem::path& path,
                                                            const config::ModelOptions& o) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored) && !tokenizers::holds_tokenizer(path)) {
    log_warning("{}: holds no tokenizer; its ids stand for bytes, unless --tokenizer names a tokenizer", path.string());
    return bytes_tokenizer(o.vocabulary_size, path.string());
  }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = tokenizers::load_tokenizer(path, o.vocabulary_size);
  if (tokenizer->vocabulary_size() != o.vocabulary_size) {
    user_error("{}: its tokenizer {} has {} tokens, but vocab_size is {} in config.json", path.string(),
               tokenizer->name(), tokenizer->vocabulary_size(), o.vocabulary_size);
  }
  return tokenizer;
}

// Returns the config.json with the value of each alias under the key that is read. Throws UserError if an alias and its
// key have different values.
SortedJson without_aliases(SortedJson document, const Settings& settings, const Architecture& architecture) {
  for (const auto& [alias, key] : architecture.names().aliases) {
    if (!settings.has(alias)) {
      continue;
    }
    if (settings.has(key) && document.at(alias) != document.at(key)) {
      settings.refuse(alias, fmt::format("must be equal to {}, another name of the setting", key));
    }
    document[key] = document.at(alias);
  }
  return document;
}

// Reads the options and parameters of a model that transformers implements.
void read_theirs(const Settings& given, const SortedJson& document, const ModelFolder& files, Checkpoint& checkpoint) {
  const Architecture& architecture = architecture_of(given);
  const SortedJson values = without_aliases(document, given, architecture);
  const Settings settings(values, given.origin());
  config::ModelOptions& model = checkpoint.config.model;
  model = architecture.read(settings);
  config::check(model, settings.origin() + ": cannot be read as a model of Headroom");
  if (model.n_layers > std::ssize(files.names())) {
    user_error("{}: requires {} layers, but {} has only {} tensors", settings.origin(), model.n_layers, files.origin(),
               files.names().size());
  }
  const TensorNames names(files, architecture.names());
  std::vector<Mapping> mappings = architecture.mappings(model);
  const std::vector<Mapping> redundant = architecture.redundant(model);
  checkpoint.tensors = read_parameters(files, mappings, names);
  drop_tied_head(files, checkpoint.tensors, model, mappings);
  require_redundant(files, redundant, names, checkpoint.tensors);
  require_all_used(files, mappings, redundant, names, architecture.names());
}

// Reads the options and parameters that HeadroomForCausalLM.save_pretrained() wrote.
void read_own(const Settings& settings, const SortedJson& document, const ModelFolder& files, Checkpoint& checkpoint) {
  const auto list = document.find("settings");
  if (list == document.end() || !list->is_array() ||
      !std::all_of(list->begin(), list->end(), [](const SortedJson& one) { return one.is_string(); })) {
    settings.refuse("settings", "must be a list of settings");
  }
  for (const SortedJson& one : *list) {
    const std::string setting = one.get<std::string>();
    if (!setting.starts_with("model.")) {
      settings.refuse("settings", fmt::format("holds {}, which is not a key of [model]", setting));
    }
    config::set_key(checkpoint.config, setting, settings.place("settings"));
  }
  config::check(checkpoint.config.model, files.origin());
  const auto shapes = models::make_model(checkpoint.config.model, 0, at::TensorOptions(at::kFloat).device(at::kMeta));
  for (const nn::Parameter& parameter : shapes->parameters().in_creation_order()) {
    const std::string name = "model." + parameter.name;
    checkpoint.tensors[name] = files.at(name, parameter.tensor.sizes().vec()).to(at::kFloat, false, /*copy=*/true);
  }
  for (const std::string& name : files.names()) {
    if (!checkpoint.tensors.contains(name)) {
      user_error("{}: tensor \"{}\" has no equivalent", files.origin(), name);
    }
  }
}

bool was_trained_here(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / kWeightsFile, ignored) &&
         SafetensorsFile(folder / kWeightsFile).metadata().contains(kTrainedHere);
}

}  // namespace

Imported import_huggingface(const std::filesystem::path& folder, const std::filesystem::path& tokenizer) {
  if (std::error_code unknown; !std::filesystem::is_directory(folder, unknown)) {
    user_error(
        "import: {}: is not a folder; download the model first, for example with `hf download MODEL --local-dir DIR`",
        folder.string());
  }
  const std::filesystem::path path = folder / "config.json";
  const SortedJson document = read_document(path);
  const Settings settings(document, path.string());
  settings.require("quantization_config", false);
  Imported imported;
  imported.kind = settings.text("model_type", "");
  const bool own = imported.kind == kOwnKind;
  config::Config& config = imported.checkpoint.config;
  if (own) {
    read_own(settings, document, ModelFolder(folder), imported.checkpoint);
  } else {
    read_theirs(settings, document, ModelFolder(folder), imported.checkpoint);
  }
  imported.checkpoint.verified = true;  // there are no checksums
  imported.checkpoint.tokenizer = read_tokenizer(tokenizer.empty() ? folder : tokenizer, config.model);
  const auto is_set = [&](const char* key) { return settings.has(key); };
  const bool has_special = own ? is_set("bos_token_id") || is_set("eos_token_id") : !was_trained_here(folder);
  if (has_special) {
    store_special_tokens(read_special_tokens(folder, document, *imported.checkpoint.tokenizer), imported.checkpoint);
  }
  config.tokenizer.kind = imported.checkpoint.tokenizer->kind();
  config.tokenizer.vocabulary_size = config.model.vocabulary_size;
  config.train.precision = config::Precision::fp32;  // so that the logits equal the original's on any machine
  return imported;
}

}  // namespace headroom::store
