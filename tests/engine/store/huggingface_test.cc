#include "headroom/store/huggingface.h"

#include <gtest/gtest.h>

#include "engine/store/stored_tensors.h"
#include "folder_test.h"
#include "headroom/config/attention/dense_options.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "headroom/core/safetensors.h"
#include "headroom/models/language_model.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/open_model.h"
#include "tiny/files.h"

namespace headroom::store {
namespace huggingface_test {

namespace fs = std::filesystem;

// Models and logits written by transformers (huggingface/make.py), and by the authors' code of DCFormer and DCPythia.
const fs::path kModels = fs::path(HEADROOM_SOURCE_DIR) / "tests" / "engine" / "store" / "huggingface";
const fs::path kTokenizer = kModels / "tokenizer.json";
constexpr const char* kNames[] = {"gpt2",
                                  "gpt_neox",
                                  "gpt_neox_sequential",
                                  "llama",
                                  "llama_biases",
                                  "llama_scaled",
                                  "mistral",
                                  "qwen2",
                                  "qwen3",
                                  "gemma3_text",
                                  "gemma3_text_scaled",
                                  "gpt_oss",
                                  "gpt_oss_yarn",
                                  "deepseek_v2",
                                  "deepseek_v2_lite",
                                  "jetmoe",
                                  "qwen3_next_experts",
                                  "dcformer_mgate",
                                  "dcformer_no_qk_norm",
                                  "dcpythia_parallel"};

// Models whose gradient and generated text are recorded as well.
constexpr const char* kRecorded[] = {
    "llama_scaled",     "qwen3",  "gemma3_text",       "gemma3_text_scaled", "gpt_oss", "gpt_oss_yarn", "deepseek_v2",
    "deepseek_v2_lite", "jetmoe", "qwen3_next_experts"};

class Huggingface : public testing::TestWithParam<const char*> {};
class HuggingfaceRecords : public Huggingface {};

at::Tensor tensor_of(const fs::path& path, const std::string& name) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  return view_of(file, name, file->at(name)).clone();
}

at::Tensor logits_of(const Checkpoint& checkpoint, const at::Tensor& tokens) {
  const c10::InferenceMode no_graph;
  const auto model = build_model(checkpoint);
  models::Memory memory;
  return models::as_language_model(*model, "test").logits(tokens, memory, nn::Context());
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Returns the gradient of the mean cross-entropy with respect to the embedding, which all other layers affect.
at::Tensor gradient_of(const Checkpoint& checkpoint, const at::Tensor& tokens) {
  const auto model = build_trainable(checkpoint, at::kCPU);
  models::Memory memory;
  const nn::Context context{.training = true};
  models::as_language_model(*model, "test").loss(tokens, memory, context).cross_entropy.backward();
  return model->parameters().at("embed").grad();
}

// Generates greedily with the KV cache after the first `n_given` tokens of `text`, up to its length.
std::vector<std::int64_t> written_by(const Checkpoint& checkpoint, const std::vector<std::int64_t>& text,
                                     std::size_t n_given) {
  const c10::InferenceMode no_graph;
  const auto model = build_model(checkpoint);
  const models::LanguageModel& writer = models::as_language_model(*model, "test");
  models::DecodeState state = writer.start_decoding();
  std::vector<std::int64_t> written(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n_given));
  for (std::size_t read = 0; written.size() < text.size();) {
    const models::DecodeRow row{&state, std::span<const std::int64_t>(written).subspan(read)};
    read = written.size();
    written.push_back(writer.decode({&row, 1}, nn::Context()).argmax(-1).item<std::int64_t>());
  }
  return written;
}

TEST_P(HuggingfaceRecords, GeneratesAndTrainsAsTransformersDoes) {
  const fs::path expected = kModels / GetParam() / "expected.safetensors";
  const Checkpoint checkpoint = import_huggingface(kModels / GetParam(), kTokenizer).checkpoint;
  const at::Tensor gradient = tensor_of(expected, "gradient");
  EXPECT_GT(gradient.abs().max().item<double>(), 1e-3);
  EXPECT_LT(difference(gradient_of(checkpoint, tensor_of(expected, "tokens")), gradient), 1e-4);
  const at::Tensor written = tensor_of(expected, "written");
  const std::vector<std::int64_t> text(written.data_ptr<std::int64_t>(),
                                       written.data_ptr<std::int64_t>() + written.numel());
  EXPECT_EQ(written_by(checkpoint, text, 8), text);
}

TEST_P(Huggingface, GivesTheLogitsOfTransformers) {
  const Imported imported = import_huggingface(kModels / GetParam(), kTokenizer);
  EXPECT_TRUE(std::string(GetParam()).starts_with(imported.kind));
  const at::Tensor tokens = tensor_of(kModels / GetParam() / "expected.safetensors", "tokens");
  const at::Tensor expected = tensor_of(kModels / GetParam() / "expected.safetensors", "logits");
  EXPECT_GT(expected.std().item<double>(), 0.3);
  // The authors' float32 logits of composed heads differ by up to 2e-4 from those in float64.
  const double limit = imported.kind.starts_with("dc") ? 1e-4 * expected.abs().max().item<double>() : 1e-5;
  EXPECT_LT(difference(logits_of(imported.checkpoint, tokens), expected), limit);

  // Through a checkpoint file.
  const tiny::Folder folder;
  save_checkpoint(imported.checkpoint, folder / "model.safetensors");
  const Checkpoint read = read_checkpoint(folder / "model.safetensors");
  EXPECT_TRUE(read.verified);
  EXPECT_EQ(read.tokenizer->name(), imported.checkpoint.tokenizer->name());
  EXPECT_LT(difference(logits_of(read, tokens), expected), limit);

  // And back again.
  const std::string kind = export_huggingface(imported.checkpoint, folder / "back", "test");
  EXPECT_EQ(kind, imported.kind);
  const Imported again = import_huggingface(folder / "back");
  EXPECT_EQ(config::to_toml(again.checkpoint.config), config::to_toml(imported.checkpoint.config));
  EXPECT_EQ(again.checkpoint.tensors.size(), imported.checkpoint.tensors.size());
  for (const auto& [name, tensor] : imported.checkpoint.tensors) {
    EXPECT_TRUE(again.checkpoint.tensors.at(name).equal(tensor)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Huggingface, testing::ValuesIn(kNames),
                         [](const auto& one) { return std::string(one.param); });

INSTANTIATE_TEST_SUITE_P(Kinds, HuggingfaceRecords, testing::ValuesIn(kRecorded),
                         [](const auto& one) { return std::string(one.param); });

// A copy of a model's folder, for tests that change its config.json and tensors.
class HuggingfaceFolder : public testing::Test {
 protected:
  void copy(const std::string& name) {
    path_ = folder_ / "model";
    fs::remove_all(path_);
    fs::copy(kModels / name, path_);
  }
  void set(const std::string& pointer, const std::string& value) {
    Json json = parse_json(read_text_file(path_ / "config.json"), "config.json");
    json[Json::json_pointer(pointer)] = Json::parse(value);
    write_text_file(path_ / "config.json", json.dump());
  }
  // Rewrites the tensors after `change`, which may remove some (undefined) or add others, in `files` shards.
  template <class Change>
  void rewrite(Change&& change, std::size_t files = 1) {
    std::map<std::string, at::Tensor> tensors;
    {
      const auto file = std::make_shared<const SafetensorsFile>(path_ / "model.safetensors");
      for (const auto& [name, stored] : file->tensors()) {
        tensors[name] = view_of(file, name, stored).clone();
      }
    }
    change(tensors);
    fs::remove(path_ / "model.safetensors");
    std::vector<SafetensorsWriter> writers(files);
    Json map = Json::object();
    std::size_t next = 0;
    for (auto& [name, tensor] : tensors) {
      tensor = tensor.contiguous();
      const std::size_t file = next++ % files;
      writers[file].add(name, stored_type(tensor.scalar_type(), name), tensor.sizes().vec(), bytes_of(tensor));
      map[name] = shard(file);
    }
    for (std::size_t file = 0; file < files; ++file) {
      writers[file].write(path_ / (files == 1 ? "model.safetensors" : shard(file)));
    }
    if (files > 1) {
      write_text_file(path_ / "model.safetensors.index.json", Json{{"weight_map", map}}.dump());
    }
  }
  static std::string shard(std::size_t file) { return fmt::format("model-{}.safetensors", file); }
  std::string refusal() const {
    return user_error_of([&] { import_huggingface(path_, kTokenizer); });
  }
  Checkpoint read() const { return import_huggingface(path_, kTokenizer).checkpoint; }

  tiny::Folder folder_;
  fs::path path_;
};

TEST_F(HuggingfaceFolder, OtherTypesAndShardsAreRead) {
  const Checkpoint whole = import_huggingface(kModels / "llama", kTokenizer).checkpoint;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kDouble}) {
    copy("llama");
    rewrite(
        [&](auto& tensors) {
          for (auto& [name, tensor] : tensors) {
            tensor = tensor.to(type);
          }
        },
        3);
    for (const auto& [name, tensor] : read().tensors) {
      const bool half = type != at::kDouble && tensor.dim() > 1;  // matrices are stored as they are
      EXPECT_EQ(tensor.scalar_type(), half ? type : at::kFloat);
      EXPECT_TRUE(tensor.to(at::kFloat).equal(whole.tensors.at(name).to(type).to(at::kFloat))) << name;
    }
  }
}

// Models in half precision compute alike whether they are converted as a whole or matrix by matrix.
TEST_F(HuggingfaceFolder, LargeModelsStayInHalfPrecision) {
  copy("llama");
  rewrite([](auto& tensors) {
    for (auto& [name, tensor] : tensors) {
      tensor = tensor.to(at::kBFloat16);
    }
  });
  save_checkpoint(read(), folder_ / "half.safetensors");
  const at::Tensor tokens = tensor_of(kModels / "llama" / "expected.safetensors", "tokens");
  const auto logits = [&](const OpenOptions& options, at::ScalarType stays) {
    const c10::InferenceMode no_graph;
    const OpenedModel opened = open_model((folder_ / "half.safetensors").string(), options);
    EXPECT_EQ(opened.model->parameters().at("layer0.attention.w_q").scalar_type(), stays);
    EXPECT_EQ(opened.model->parameters().at("embed").scalar_type(), at::kFloat);
    models::Memory memory;
    return models::as_language_model(*opened.model, "test").logits(tokens, memory, opened.context);
  };
  const at::Tensor whole = logits({}, at::kFloat);
  EXPECT_TRUE(logits({.largest_float_copy = 0}, at::kBFloat16).equal(whole));
  EXPECT_TRUE(logits({.writes = true, .largest_float_copy = 0}, at::kBFloat16).equal(whole));
  const OpenOptions bf16{.precision = config::Precision::bf16, .largest_float_copy = 0};
  EXPECT_LT(difference(logits(bf16, at::kBFloat16), whole), 0.2);
}

TEST_F(HuggingfaceFolder, OlderFilesAreRead) {
  const Checkpoint whole = import_huggingface(kModels / "gpt2", kTokenizer).checkpoint;
  copy("gpt2");
  rewrite([](auto& tensors) {
    std::map<std::string, at::Tensor> base;  // as a base model is saved, with its masks
    for (const auto& [name, tensor] : tensors) {
      base[name.substr(std::string_view("transformer.").size())] = tensor;
    }
    base["h.0.attn.bias"] = at::ones({1, 1, 4, 4});
    base["lm_head.weight"] = base.at("wte.weight");
    tensors = base;
  });
  for (const auto& [name, tensor] : read().tensors) {
    EXPECT_TRUE(tensor.equal(whole.tensors.at(name))) << name;
  }
  rewrite([](auto& tensors) { tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1; });
  EXPECT_HAS(refusal(), "tensor \"lm_head.weight\" differs from the embedding");

  copy("gpt_neox");  // transformers 5 has another name for the head
  const Checkpoint neox = read();
  rewrite([](auto& tensors) {
    tensors["lm_head.weight"] = tensors.at("embed_out.weight");
    tensors.erase("embed_out.weight");
  });
  EXPECT_TRUE(read().tensors.at("model.head.w").equal(neox.tensors.at("model.head.w")));
}

// Without original_max_position_embeddings, max_position_embeddings is the original length; at the top level it counts
// more than in rope_parameters.
TEST_F(HuggingfaceFolder, TheOriginalLengthMayBeInAnyPlace) {
  const auto length = [&] { return read().config.model.attention.of<config::PositionOptions>().rope_original_length; };
  copy("llama_scaled");
  EXPECT_EQ(length(), 10);
  set("/rope_parameters/original_max_position_embeddings", "null");
  EXPECT_EQ(length(), 24);
  set("/original_max_position_embeddings", "7");
  EXPECT_EQ(length(), 7);
  Json json = parse_json(read_text_file(path_ / "config.json"), "config.json");
  json["rope_scaling"] = json.at("rope_parameters");  // as older versions of transformers name it
  json.erase("rope_parameters");
  write_text_file(path_ / "config.json", json.dump());
  EXPECT_EQ(length(), 7);
}

TEST_F(HuggingfaceFolder, TheRotationBaseMayBeInAnyPlace) {
  for (const char* model : {"gpt_neox", "llama", "mistral", "qwen2"}) {
    for (const char* place : {"/rope_theta", "/rope_scaling/rope_theta", "/rope_parameters/rope_theta"}) {
      copy(model);
      const std::string share = std::string(model) == "gpt_neox" ? "0.25" : "null";
      set("/rope_parameters", "null");
      set("/rope_scaling", "null");
      set("/partial_rotary_factor", share);
      set(place, "700.0");
      EXPECT_EQ(read().config.model.attention.of<config::PositionOptions>().rope_base, 700.0) << model << place;
      set("/rotary_emb_base", "700");
      EXPECT_EQ(read().config.model.attention.of<config::PositionOptions>().rope_base, 700.0) << model << place;
      set("/rotary_emb_base", "701");
      EXPECT_HAS(refusal(), "rotary_emb_base contradicts ");
    }
  }
}

// The values that transformers' own classes give these keys.
TEST_F(HuggingfaceFolder, AMissingKeyHasTheDefaultOfItsKind) {
  const auto without = [&](const char* model, const char* key) {
    copy(model);
    Json json = parse_json(read_text_file(path_ / "config.json"), "config.json");
    json.erase(key);
    write_text_file(path_ / "config.json", json.dump());
  };
  const struct {
    const char *model, *key, *says;
  } all[] = {{"gpt2", "vocab_size", "[40, 16], but config.json requires [50257, 16]"},
             {"llama", "vocab_size", "config.json requires [32000, 16]"},
             {"mistral", "vocab_size", "config.json requires [32000, 16]"},
             {"qwen2", "vocab_size", "config.json requires [151936, 16]"},
             {"llama", "intermediate_size", "config.json requires [11008, 16]"},
             {"mistral", "intermediate_size", "config.json requires [14336, 16]"},
             {"qwen2", "intermediate_size", "config.json requires [22016, 16]"},
             {"mistral", "num_key_value_heads", "n_kv_heads"},  // 8, of 4 heads
             {"llama", "num_key_value_heads", "[12, 16], but config.json requires [24, 16]"}};
  for (const auto& one : all) {
    without(one.model, one.key);
    EXPECT_HAS(refusal(), one.says);
  }
  for (const auto& [model, length] :
       {std::pair{"llama", 2048}, {"mistral", 131072}, {"qwen2", 32768}, {"gpt_neox", 2048}}) {
    without(model, "max_position_embeddings");
    EXPECT_EQ(read().config.model.context_length, length) << model;
  }
  without("mistral", "sliding_window");
  EXPECT_EQ(read().config.model.attention.window, 4096);
  set("/sliding_window", "null");
  EXPECT_EQ(read().config.model.attention.window, 0);
}

// A mistral without a window is written as it was read, and so is a qwen2, which has no bias of the output that
// training could change. Earlier versions imported it with one: 0, until a training step changed it.
TEST_F(HuggingfaceFolder, ExportKeepsTheKind) {
  copy("mistral");
  set("/sliding_window", "null");
  EXPECT_EQ(export_huggingface(read(), folder_ / "mistral", "run"), "mistral");
  EXPECT_EQ(import_huggingface(folder_ / "mistral").checkpoint.config.model.attention.window, 0);

  copy("qwen2");
  Checkpoint checkpoint = read();
  const auto n_values = [](const fs::path& folder) {
    std::size_t bytes = 0;
    const SafetensorsFile file(folder / "model.safetensors");
    for (const auto& [name, tensor] : file.tensors()) {
      bytes += tensor.data.size();
    }
    return bytes / sizeof(float);
  };
  EXPECT_EQ(export_huggingface(checkpoint, folder_ / "qwen2", "run"), "qwen2");
  EXPECT_EQ(n_values(folder_ / "qwen2"), n_values(path_));
  EXPECT_FALSE(checkpoint.tensors.contains("model.layer0.attention.b_o"));

  checkpoint.config.model.attention.of<config::DenseOptions>().output_bias = true;
  for (int layer = 0; layer < checkpoint.config.model.n_layers; ++layer) {
    checkpoint.tensors[fmt::format("model.layer{}.attention.b_o", layer)] =
        at::zeros({checkpoint.config.model.d_model});
  }
  EXPECT_EQ(export_huggingface(checkpoint, folder_ / "qwen2", "run"), "qwen2");
  checkpoint.tensors.at("model.layer0.attention.b_o")[0] = 1.0;
  EXPECT_EQ(export_huggingface(checkpoint, folder_ / "qwen2", "run"), "llama");
  const Checkpoint again = import_huggingface(folder_ / "qwen2").checkpoint;
  EXPECT_EQ(again.tensors.at("model.layer0.attention.b_o")[0].item<float>(), 1.0F);
}

TEST_F(HuggingfaceFolder, RefusesSettingsWithoutAnEquivalentByName) {
  const struct {
    const char *model, *pointer, *value, *says;
  } all[] = {
      {"gpt2", "/model_type", R"("bert")", "model_type must be one of gpt2, gpt_neox, llama, mistral, qwen2, "},
      {"gpt2", "/scale_attn_weights", "false", "scale_attn_weights has no equivalent"},
      {"gpt2", "/scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx has no equivalent"},
      {"gpt2", "/add_cross_attention", "true", "add_cross_attention has no equivalent"},
      {"gpt2", "/activation_function", R"("mish")", "activation_function must be"},
      {"gpt2", "/n_head", "5", "n_head must divide n_embd = 16, got 5"},
      {"gpt2", "/n_head", "0", "n_head must be a whole number from 1"},
      {"gpt2", "/n_embd", "1e30", "n_embd must be a whole number from 1"},
      {"gpt2", "/n_layer", "3", "tensor \"transformer.h.2.ln_1.weight\" is missing"},
      {"gpt2", "/n_layer", "1", "tensor \"transformer.h.1.attn.c_attn.bias\" has no equivalent"},
      {"gpt2", "/n_layer", "16777216", "requires 16777216 layers, but"},
      {"gpt2", "/n_inner", "25", "has the shape [16, 24], but config.json requires [16, 25]"},
      {"gpt2", "/n_inner", "-3", "n_inner must be a whole number"},
      {"gpt2", "/vocab_size", R"("many")", "vocab_size must be a whole number"},
      {"gpt2", "/layer_norm_epsilon", "[]", "layer_norm_epsilon must be a number"},
      {"gpt2", "/tie_word_embeddings", "1", "tie_word_embeddings must be true or false"},
      {"gpt2", "/tie_word_embeddings", "false", "tensor \"lm_head.weight\" is missing"},
      {"gpt2", "/quantization_config", "{}", "quantization_config has no equivalent"},
      {"gpt_neox", "/rope_parameters/rope_type", R"("dynamic")",
       "config.json: rope_parameters.rope_type has no equivalent, got \"dynamic\""},
      {"gpt_neox", "/rope_parameters/rope_type", R"("linear")",
       "rope_parameters.factor must be at least 1, got nothing"},
      {"gpt_neox", "/rope_parameters/partial_rotary_factor", "0.1", "rope_fraction"},
      {"gpt_neox", "/rope_parameters/partial_rotary_factor", "1.5",
       "rope_parameters.partial_rotary_factor must be above 0 and at most 1, got 1.5"},
      {"llama", "/rope_parameters/rope_theta", "0.5", "rope_parameters.rope_theta must be above 1, got 0.5"},
      {"gpt_neox", "/rope_parameters", "7", "rope_parameters must be a JSON object"},
      {"llama", "/rope_scaling", R"({"rope_type":"llama3","factor":8.0})",
       "rope_scaling.rope_type contradicts rope_parameters.rope_type, which is \"default\", got \"llama3\""},
      {"llama", "/rope_parameters", R"({"rope_type":"none"})", "rope_parameters.rope_type has no equivalent"},
      {"llama_scaled", "/rope_parameters/low_freq_factor", "null", "low_freq_factor must be above 0, got nothing"},
      {"llama_scaled", "/rope_parameters/low_freq_factor", "9.0", "low_freq_factor must be below high_freq_factor = 4"},
      {"llama", "/partial_rotary_factor", "0.5", "partial_rotary_factor has no equivalent, got 0.5"},
      {"llama", "/rope_parameters", R"({"type":"longrope"})", "rope_parameters.type has no equivalent"},
      {"llama", "/sliding_window", "8", "sliding_window has no equivalent"},
      {"llama", "/num_key_value_heads", "3", "n_kv_heads"},
      {"qwen2", "/use_sliding_window", "true", "use_sliding_window has no equivalent"},
      {"qwen3", "/layer_types", R"(["full_attention"])", "layer_types must have 3 entries, one for each layer"},
      {"qwen3", "/layer_types", R"(["a","b","c"])", "layer_types must be full_attention or sliding_attention"},
      {"qwen3", "/layer_types", "[1]", "layer_types must be a list of strings"},
      {"gemma3_text", "/final_logit_softcapping", "30.0", "final_logit_softcapping has no equivalent, got 30.0"},
      {"gemma3_text", "/use_bidirectional_attention", "true", "use_bidirectional_attention has no equivalent"},
      {"gemma3_text", "/rope_parameters/full_attention/rope_type", R"("dynamic")",
       "rope_parameters.full_attention.rope_type has no equivalent, got \"dynamic\""},
      {"gemma3_text", "/rope_scaling", R"({"rope_type":"longrope"})", "rope_scaling.rope_type has no equivalent"},
      {"qwen3_next_experts", "/mlp_only_layers", "[0.5]", "mlp_only_layers must be a list of whole numbers"},
      {"qwen3_next_experts", "/shared_expert_intermediate_size", "0",
       "shared_expert_intermediate_size must be a whole"},
      {"qwen3_next_experts", "/num_experts", "6",
       "mlp.gate.weight\" has the shape [5, 16], but config.json requires [6, 16]"},
      {"gemma3_text", "/query_pre_attn_scalar", "0", "query_pre_attn_scalar must be above 0"},
      {"gpt_oss", "/swiglu_limit", "5.0", "swiglu_limit has no equivalent, got 5.0"},
      {"gpt_oss", "/num_local_experts", "6",
       "mlp.router.weight\" has the shape [5, 16], but config.json requires [6, 16]"},
      {"gpt_oss_yarn", "/rope_parameters/factor", "0.5", "rope_parameters.factor must be at least 1, got 0.5"},
      {"gpt_oss_yarn", "/rope_parameters/original_max_position_embeddings", "0",
       "rope_parameters.original_max_position_embeddings must be a whole number from 1"},
      {"deepseek_v2", "/topk_method", R"("group_limited_greedy")", "topk_method has no equivalent"},
      {"deepseek_v2", "/norm_topk_prob", "true", "norm_topk_prob has no equivalent, got true"},
      {"deepseek_v2", "/first_k_dense_replace", "3", "first_k_dense_replace must be a whole number below"},
      {"deepseek_v2", "/n_routed_experts", "6",
       "mlp.gate.weight\" has the shape [5, 16], but config.json requires [6, 16]"},
      {"deepseek_v2", "/qk_nope_head_dim", "5", "qk_nope_head_dim must be even, got 5"},
      {"jetmoe", "/num_attention_heads", "4", "num_attention_heads has no equivalent, got 4"},
      {"dcformer_mgate", "/query_wise", "true", "query_wise has no equivalent, got true"},
      {"dcformer_mgate", "/use_dcmha", "false", "use_dcmha has no equivalent, got false"},
      {"dcformer_mgate", "/n_local_heads", "2", "n_local_heads has no equivalent, got 2"},
      {"dcformer_mgate", "/head_dim", "16", "head_dim has no equivalent, got 16"},
      {"dcformer_mgate", "/n_head", "1", "n_head has no equivalent, got 1"},
      {"dcformer_mgate", "/window_type", R"("GGL")", "window_type must be null, LG, LGLL or LGL6"},
      {"dcformer_mgate", "/window_type", R"("LG")", "window_size must be 256 with window_type LG, got 8"},
      {"dcformer_mgate", "/mgate_dim", "7", "mgate_dim must divide intermediate_size = 48, got 7"},
      {"dcformer_mgate", "/mgate", "false", "tensor \"layers.0.feed_forward.mg.weight\" has no equivalent"},
      {"dcformer_mgate", "/rope_scaling", R"({"type":"linear"})", "rope_scaling has no equivalent"},
      {"dcpythia_parallel", "/rotary_pct", "0", "rotary_pct must be above 0"},
      {"dcpythia_parallel", "/use_linear_bias", "false", "tensor \"layers.0.attention.wo.bias\" has no equivalent"}};
  for (const auto& one : all) {
    copy(one.model);
    set(one.pointer, one.value);
    EXPECT_HAS(refusal(), one.says);
  }
}

// The windows of dcformer and dcpythia, per layer.
TEST_F(HuggingfaceFolder, NamedPatternsOfWindowsAreReadAndWritten) {
  using Windows = std::vector<std::int64_t>;
  const struct {
    const char *type, *size;
    Windows windows;
  } all[] = {{"null", "8", {8, 0, 8, 0}},
             {"null", "null", {0, 0, 0, 0}},
             {R"("LG")", "256", {256, 0, 256, 0}},
             {R"("LGLL")", "256", {256, 0, 256, 256}},
             {R"("LGL6")", "256", {256, 0, 256, 256}}};
  for (const auto& one : all) {
    copy("dcformer_mgate");
    set("/window_type", one.type);
    set("/window_size", one.size);
    const Checkpoint checkpoint = read();
    const auto windows_in = [](const config::ModelOptions& o) {
      Windows windows;
      for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
        windows.push_back(o.of_layer(layer).attention.window);
      }
      return windows;
    };
    EXPECT_EQ(windows_in(checkpoint.config.model), one.windows) << one.type;
    EXPECT_EQ(export_huggingface(checkpoint, folder_ / "out", "run"), "dcformer");
    EXPECT_EQ(windows_in(import_huggingface(folder_ / "out").checkpoint.config.model), one.windows) << one.type;
  }
  // The same windows as model.layers, and windows that have no name.
  Checkpoint checkpoint = read();
  config::ModelOptions& o = checkpoint.config.model;
  o.attention.window_pattern = "1:0";
  o.layers = {{.repeat = 1, .attention = {{"window", "5"}}, .mlp = {}},
              {.repeat = 1, .attention = {{"window", "0"}}, .mlp = {}}};
  EXPECT_EQ(export_huggingface(checkpoint, folder_ / "out", "run"), "dcformer");
  o.layers[1].attention["window"] = "6";
  EXPECT_HAS(user_error_of([&] { export_huggingface(checkpoint, folder_ / "out", "run"); }),
             "dcformer by model.attention.window_pattern");
  o.layers[1].attention = {{"window", "0"}, {"rope_base", "700.0"}};
  EXPECT_HAS(user_error_of([&] { export_huggingface(checkpoint, folder_ / "out", "run"); }),
             "run: model.attention.rope_base: cannot export as dcformer");
}

// Files of dcformer may contain copies of the maps, which are not read, and fixed maps, which must be the identity.
TEST_F(HuggingfaceFolder, CopiesOfTheMapsAreOptional) {
  copy("dcpythia_parallel");
  rewrite([](auto& tensors) {
    for (const char* copy : {"dw_m", "qkw_m", "pre_proj.w", "post_proj.w"}) {
      EXPECT_EQ(tensors.erase(std::string("layers.1.attention.dyn_w_proj.") + copy), 1U);
    }
  });
  EXPECT_EQ(read().config.model.n_layers, 4);
  rewrite([](auto& tensors) { tensors["layers.1.attention.dyn_w_proj.pre_proj.w"] = at::ones({1, 4, 4}); });
  EXPECT_HAS(refusal(),
             "tensor \"layers.1.attention.dyn_w_proj.pre_proj.w\" has no equivalent: it must be the identity");
}

// Ids are those of bytes in a folder without a tokenizer.
TEST_F(HuggingfaceFolder, ATokenizerMayBeMissing) {
  copy("llama");
  const auto encoded = [&](const std::string& text) {
    return import_huggingface(path_).checkpoint.tokenizer->encode(text);
  };
  EXPECT_EQ(encoded("\x05\x03"), (std::vector<std::int32_t>{5, 3}));
  set("/vocab_size", "300");
  rewrite([](auto& tensors) {
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
      tensors[name] = at::zeros({300, 16});
    }
  });
  EXPECT_EQ(encoded("a b"), (std::vector<std::int32_t>{'a', ' ', 'b'}));
  EXPECT_EQ(import_huggingface(path_).checkpoint.tokenizer->vocabulary_size(), 300);
}

TEST_F(HuggingfaceFolder, EachExpertIsNeeded) {
  const std::string last = "model.layers.1.mlp.experts.4.up_proj.weight";
  copy("deepseek_v2");
  rewrite([&](auto& tensors) { tensors["model.layers.1.mlp.experts.5.up_proj.weight"] = tensors.at(last); });
  EXPECT_HAS(refusal(), "tensor \"model.layers.1.mlp.experts.5.up_proj.weight\" has no equivalent");
  copy("deepseek_v2");
  rewrite([&](auto& tensors) { tensors.erase(last); });
  EXPECT_HAS(refusal(), "tensor \"" + last + "\" is missing, but config.json requires it");
}

TEST_F(HuggingfaceFolder, RefusesFilesThatDoNotFit) {
  copy("gpt2");
  rewrite([](auto& tensors) { tensors["score.weight"] = at::ones({2, 2}); });
  EXPECT_HAS(refusal(), "tensor \"score.weight\" has no equivalent");
  rewrite([](auto& tensors) {
    tensors.erase("score.weight");
    tensors["transformer.ln_f.bias"] = at::ones({16}, at::kInt);
  });
  EXPECT_HAS(refusal(), "tensor \"transformer.ln_f.bias\" has type I32, but must be");

  copy("gpt2");
  rewrite([](auto&) {}, 2);
  const std::string good = read_text_file(path_ / "model.safetensors.index.json");
  for (const char* name : {"../model-0.safetensors", "/etc/passwd", "..", ""}) {
    Json index = parse_json(good, "index");
    index["weight_map"]["transformer.wte.weight"] = name;
    write_text_file(path_ / "model.safetensors.index.json", index.dump());
    EXPECT_HAS(refusal(), "must be in this folder");
  }
  Json index = parse_json(good, "index");
  index["weight_map"]["other"] = "model-0.safetensors";
  write_text_file(path_ / "model.safetensors.index.json", index.dump());
  EXPECT_HAS(refusal(), "weight_map: model-0.safetensors has no tensor \"other\"");
  write_text_file(path_ / "model.safetensors.index.json", "{}");
  EXPECT_HAS(refusal(), "weight_map must be an object");
  fs::remove(path_ / "model.safetensors.index.json");
  EXPECT_HAS(refusal(), "holds neither model.safetensors nor model.safetensors.index.json");
  fs::remove(path_ / "config.json");
  EXPECT_HAS(refusal(), "config.json");

  copy("gpt2");
  set("/vocab_size", "39");
  rewrite(
      [](auto& tensors) { tensors["transformer.wte.weight"] = tensors["transformer.wte.weight"].narrow(0, 0, 39); });
  EXPECT_HAS(refusal(), "has 40 tokens, but vocab_size is 39");

  copy("gpt2");
  rewrite([](auto& tensors) { tensors["transformer.ln_f.bias"][0] = INFINITY; });
  EXPECT_HAS(refusal(), "model.safetensors: tensor \"transformer.ln_f.bias\" has values that are not finite");
}

TEST_F(HuggingfaceFolder, ExportRefusesSettingsThatNoKindHas) {
  const auto says = [&](const std::function<void(config::ModelOptions&)>& change) {
    Checkpoint checkpoint = import_huggingface(kModels / "llama", kTokenizer).checkpoint;
    change(checkpoint.config.model);
    return user_error_of([&] { export_huggingface(checkpoint, folder_ / "out", "run"); });
  };
  EXPECT_HAS(says([](auto& o) { o.attention.projection = "experts"; }), "model.attention.projection");
  EXPECT_HAS(says([](auto& o) { o.head_bias = true; }), "run: model.head_bias:");
  EXPECT_HAS(says([](auto& o) { o.scaled_embeddings = true; }), "model.scaled_embeddings");
  EXPECT_HAS(says([](auto& o) { o.memory_length = 24; }), "model.memory_length");
  EXPECT_HAS(says([](config::ModelOptions& o) { o.attention.of<config::PositionOptions>().rope_fraction = 0.5; }),
             "gpt2 by model.attention.position, gpt_neox by model.norm, llama by model.attention.rope_fraction");
  Checkpoint more = import_huggingface(kModels / "llama", kTokenizer).checkpoint;
  more.tensors["model.layer0.attention.w_more"] = at::zeros({1});
  EXPECT_THROW(export_huggingface(more, folder_ / "out", "run"), UserError);
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(HuggingfaceFolder, ExportReplacesOnlyItsOwnFiles) {
  const Checkpoint checkpoint = import_huggingface(kModels / "llama", kTokenizer).checkpoint;
  const fs::path own = folder_ / "own";
  export_huggingface(checkpoint, own, "run");
  export_huggingface(checkpoint, own, "run");
  copy("llama");
  EXPECT_THROW(export_huggingface(checkpoint, path_, "run"), UserError);
  fs::remove(own / "model.safetensors");
  EXPECT_THROW(export_huggingface(checkpoint, own, "run"), UserError) << "a config that belongs to other weights";
}

// Biases that an architecture always has are written as zeros if the model has none.
TEST_F(HuggingfaceFolder, ExportFillsBiasesWithZeros) {
  config::Config config = tiny::config();
  config::ModelOptions& o = config.model;
  o.memory_length = 0;
  o.head_bias = false;
  o.attention = {};
  o.attention.n_heads = 2;
  o.attention.d_head = 8;
  o.mlp.bias = false;
  for (const char* position : {"learned", "rope"}) {
    o.attention.position = position;
    Checkpoint checkpoint;
    checkpoint.config = config;
    checkpoint.tokenizer = tiny::bytes_tokenizer();
    const models::LanguageModel model(o, 1, at::TensorOptions(at::kFloat));
    for (const nn::Parameter& parameter : model.parameters().stored()) {
      checkpoint.tensors["model." + parameter.name] = parameter.tensor.detach();
    }
    export_huggingface(checkpoint, folder_ / position, "run");
    const Imported again = import_huggingface(folder_ / position);
    EXPECT_EQ(again.checkpoint.tokenizer->encode("a b"), (std::vector<std::int32_t>{'a', ' ', 'b'}));
    const at::Tensor tokens = at::arange(8).reshape({1, 8}) + 90;
    EXPECT_LT(difference(logits_of(again.checkpoint, tokens), logits_of(checkpoint, tokens)), 1e-5);
  }
}

}  // namespace huggingface_test
}  // namespace headroom::store
