#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "architecture.h"
#include "engine/store/checkpoint_reader.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/huggingface.h"

namespace headroom::store {
namespace {

constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kRemedy =
    "to use the model in transformers, save it with headroom_torch.huggingface.HeadroomForCausalLM";

// Returns a layer's options with default sizes (0) made explicit.
config::ModelOptions explicit_sizes(const config::ModelOptions& model, std::int64_t layer) {
  config::ModelOptions o = model.of_layer(layer);
  config::AttentionOptions& a = o.attention;
  auto& latent = a.of<config::LatentOptions>();
  latent.d_rotary = a.projection->rotary_channels(a);
  latent.d_value = a.value_width();
  a.n_kv_heads = a.kv_heads();
  return o;
}

// Returns whether a key affects training only, or belongs to a part that the model lacks.
bool has_no_effect(const std::string& key, const config::ModelOptions& o) {
  const bool has_epsilon =
      o.attention.qk_norm || o.attention.projection->has_latent() || o.attention.score->is_recurrent();
  return key.ends_with("dropout") || key.ends_with("coefficient") || key.starts_with("model.initialisation") ||
         key == "model.embedding_std" || (key == "model.attention.qk_norm_epsilon" && !has_epsilon);
}

// Returns the options that are lost in `settings`, a config.json of the architecture. Throws UserError for a value that
// cannot be read. Biases may be added, because an export fills them with zeros.
std::vector<std::string> lost_in(const Json& settings, const Architecture& architecture,
                                 const config::ModelOptions& o) {
  const SortedJson document = parse_sorted_json(settings.dump(), "config.json");  // numbers as a file has them
  const config::ModelOptions again = architecture.read(Settings(document, "config.json"));
  std::vector<std::string> lost;
  for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
    config::ModelOptions before = explicit_sizes(o, layer), after = explicit_sizes(again, layer);
    before.attention.bias = before.attention.bias || after.attention.bias;
    before.mlp.bias = before.mlp.bias || after.mlp.bias;
    // qwen2 drops an output bias of zeros.
    before.attention.of<config::DenseOptions>() = after.attention.of<config::DenseOptions>();
    for (const std::string& key : config::differing_keys(before, after)) {
      if (!has_no_effect(key, before) && std::ranges::find(lost, key) == lost.end()) {
        lost.push_back(key);
      }
    }
  }
  return lost;
}

// Returns the architecture for the options. Throws UserError naming the options that the closest architecture lacks.
const Architecture& architecture_of(const config::ModelOptions& o, const std::string& origin) {
  if (o.kind != config::ModelKind::language_model) {
    user_error("{}: model.kind: cannot export, only language models have an equivalent in Hugging Face", origin);
  }
  for (const auto& [layer, count] : o.kinds_of_layers(o.n_layers)) {
    if (!layer.attention.has_heads() || layer.mlp.kind == config::MlpKind::none) {
      user_error("{}: model.{}: cannot export, no supported Hugging Face architecture has layers without {}; {}",
                 origin, layer.attention.has_heads() ? "mlp.kind" : "attention.n_heads",
                 layer.attention.has_heads() ? "MLP" : "attention", kRemedy);
    }
  }
  std::string closest, unreadable;
  std::vector<std::string> missing;
  for (const Architecture* architecture : architectures()) {
    const Json settings = architecture->write(o, "");
    try {
      const std::vector<std::string> lost = lost_in(settings, *architecture, o);
      if (lost.empty()) {
        return *architecture;
      }
      if (missing.empty() || lost.size() < missing.size()) {
        closest = settings.at("model_type");
        missing = lost;
      }
    } catch (const UserError& error) {  // a value that the architecture does not allow
      unreadable = unreadable.empty() ? error.what() : unreadable;
    }
  }
  if (missing.empty()) {
    user_error("{}: cannot export, no supported Hugging Face architecture has its settings: {}", origin, unreadable);
  }
  const bool one = missing.size() == 1;
  user_error("{}: {}: cannot export, no supported Hugging Face architecture has {} (the closest is {}); {}{}", origin,
             fmt::join(missing, ", "), one ? "this setting" : "these settings", closest, kRemedy,
             one && missing[0] == "model.head_bias" ? ", or train with model.head_bias = false" : "");
}

// Throws UserError for a parameter that no tensor of the architecture can hold.
void require_mappings(const Checkpoint& checkpoint, const std::vector<Mapping>& mappings, const std::string& origin) {
  for (const auto& [name, tensor] : checkpoint.tensors) {
    const bool mapped = !name.starts_with("model.") || std::ranges::any_of(mappings, [&](const Mapping& mapping) {
      return name == "model." + mapping.parameter;
    });
    if (!mapped) {
      user_error("{}: parameter {}: cannot export, no supported Hugging Face architecture has it", origin,
                 name.substr(6));
    }
  }
}

using Tensors = std::map<std::string, at::Tensor>;

// Returns all tensors of the file; zeros where the model has no such parameter.
Tensors to_tensors(const Checkpoint& checkpoint, const std::vector<Mapping>& mappings) {
  Tensors tensors;
  for (const Mapping& mapping : mappings) {
    at::Tensor& tensor = tensors[mapping.tensor];
    if (!tensor.defined()) {
      tensor = at::zeros(mapping.stored, at::TensorOptions(at::kFloat));
    }
    if (const auto found = checkpoint.tensors.find("model." + mapping.parameter); found != checkpoint.tensors.end()) {
      mapping.write(found->second, tensor);
    }
  }
  return tensors;
}

// Removes the droppable tensors if all of them are zeros. Returns whether they are.
bool drop_zeros(const std::vector<Mapping>& mappings, Tensors& tensors) {
  std::vector<std::string> names;
  for (const Mapping& mapping : mappings) {
    if (mapping.droppable) {
      names.push_back(mapping.tensor);
    }
  }
  if (!std::ranges::all_of(names, [&](const std::string& name) { return !tensors.at(name).any().item<bool>(); })) {
    return false;
  }
  for (const std::string& name : names) {
    tensors.erase(name);
  }
  return true;
}

// The files of an export other than its weights and its config.json.
constexpr const char* kOtherFiles[] = {kGeneration, "tokenizer.json", "tokenizer.model", "tokenizer_config.json"};

// Throws UserError if the folder contains files of a model that Headroom did not export.
void require_own(const std::filesystem::path& folder) {
  bool found = false;
  const auto look = [&](const char* name) {
    std::error_code unknown;
    const std::filesystem::file_status status = std::filesystem::status(folder / name, unknown);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
      user_error("{}: is not a regular file; choose another folder", printable((folder / name).string()));
    }
    found = found || std::filesystem::exists(status);
  };
  look("config.json");
  look(kWeightsFile);
  std::ranges::for_each(kOtherFiles, look);
  if (!found) {
    return;
  }
  bool own = false;
  try {
    own = SafetensorsFile(folder / kWeightsFile).metadata().contains(kWrittenBy);
  } catch (const Error&) {  // missing or corrupt
  }
  if (!own) {
    user_error("{}: holds files of a model that Headroom did not export; choose another folder",
               printable(folder.string()));
  }
}

}  // namespace

std::string export_huggingface(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                               const std::string& origin) {
  const config::ModelOptions& o = checkpoint.config.model;
  const Architecture& architecture = architecture_of(o, origin);
  const std::vector<Mapping> mappings = architecture.mappings(o);
  require_mappings(checkpoint, mappings, origin);
  Tensors tensors = to_tensors(checkpoint, mappings);
  const std::optional<SpecialTokens> stored = stored_special_tokens(checkpoint);
  std::string kind = stored ? stored->model_type : "";
  if (kind == "qwen2" && !drop_zeros(mappings, tensors)) {
    kind.clear();  // training has updated biases that qwen2 does not have
  }

  Json settings = architecture.write(o, kind);
  settings["torch_dtype"] = "float32";

  make_folder(folder);
  require_own(folder);
  SafetensorsWriter writer;
  for (const auto& [name, tensor] : tensors) {
    writer.add(name, DType::f32, tensor.sizes().vec(), bytes_of(tensor));
  }
  writer.set_metadata("format", "pt");
  writer.set_metadata(kWrittenBy, "headroom");
  if (!stored) {
    writer.set_metadata(kTrainedHere, "true");
  }
  writer.write(folder / kWeightsFile);

  // Unset special tokens are written as null, because transformers has defaults for missing keys.
  settings.update(stored ? stored->config
                         : Json{{"bos_token_id", nullptr}, {"eos_token_id", nullptr}, {"pad_token_id", nullptr}});
  write_text_file(folder / "config.json", settings.dump(2) + "\n");
  for (const char* earlier : kOtherFiles) {
    std::filesystem::remove(folder / earlier);  // written by an earlier export
  }
  if (stored && !stored->generation.empty()) {
    write_text_file(folder / kGeneration, stored->generation.dump(2) + "\n");
  }
  export_tokenizer(*checkpoint.tokenizer, o.context_length, folder, stored);
  return settings.at("model_type");
}

void export_tokenizer(const tokenizers::Tokenizer& tokenizer, std::int64_t context_length,
                      const std::filesystem::path& folder, const std::optional<SpecialTokens>& given) {
  if (tokenizer.kind() == config::TokenizerKind::words) {
    log_warning("{}: its tokenizer {} has no equivalent and is not exported", folder.string(), tokenizer.name());
    return;
  }
  const SpecialTokens tokens = given ? *given : default_special_tokens(tokenizer);
  Json settings = tokens.tokenizer;
  tokenizers::SpecialNames special{.names = {}, .in_front = tokens.begin(tokenizer)};
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const std::string name = tokens.name(key);
    settings[key] = name.empty() ? Json() : Json(name);
    if (!name.empty() && std::ranges::find(special.names, name) == special.names.end()) {
      special.names.push_back(name);
    }
  }
  settings["model_max_length"] = context_length;
  if (const std::string json = tokenizers::to_tokenizer_json(tokenizer, special); !json.empty()) {
    write_text_file(folder / "tokenizer.json", json);
    settings["tokenizer_class"] = "PreTrainedTokenizerFast";
    settings["model_input_names"] = {"input_ids", "attention_mask"};
  }
  if (tokenizer.kind() == config::TokenizerKind::sentencepiece) {
    write_text_file(folder / "tokenizer.model", tokenizers::to_sentencepiece_model(tokenizer));
  }
  write_text_file(folder / "tokenizer_config.json", to_json_line(settings) + "\n");
}

}  // namespace headroom::store
