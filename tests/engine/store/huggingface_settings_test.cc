// Tests the settings of a config.json: their places, their defaults, and settings without an equivalent.
#include "headroom/config/part_options.h"
#include "huggingface_folder.h"

namespace headroom::store::huggingface_settings_test {

using namespace fixtures;

// original_max_position_embeddings at the top level takes precedence over rope_parameters. Without it,
// max_position_embeddings is the original length.
TEST_F(HuggingfaceFolder, TheOriginalLengthMayBeInAnyPlace) {
  const auto length = [&] { return read().config.model.attention.of<config::PositionOptions>().rope_original_length; };
  copy("llama_scaled");
  EXPECT_EQ(length(), 10);
  set("/rope_parameters/original_max_position_embeddings", "null");
  EXPECT_EQ(length(), 24);
  set("/original_max_position_embeddings", "7");
  EXPECT_EQ(length(), 7);
  change_config([](Json& json) {
    json["rope_scaling"] = json.at("rope_parameters");  // older versions of transformers use this name
    json.erase("rope_parameters");
  });
  EXPECT_EQ(length(), 7);
}

TEST_F(HuggingfaceFolder, TheRotationBaseMayBeInAnyPlace) {
  const auto base = [&] { return read().config.model.attention.of<config::PositionOptions>().rope_base; };
  for (const char* model : {"gpt_neox", "llama", "mistral", "qwen2"}) {
    for (const char* place : {"/rope_theta", "/rope_scaling/rope_theta", "/rope_parameters/rope_theta"}) {
      copy(model);
      const std::string share = std::string(model) == "gpt_neox" ? "0.25" : "null";
      set("/rope_parameters", "null");
      set("/rope_scaling", "null");
      set("/partial_rotary_factor", share);
      set(place, "700.0");
      EXPECT_EQ(base(), 700.0) << model << place;
      set("/rotary_emb_base", "700");
      EXPECT_EQ(base(), 700.0) << model << place;
      set("/rotary_emb_base", "701");
      EXPECT_HAS(refusal(), "rotary_emb_base contradicts ");
    }
  }
}

TEST_F(HuggingfaceFolder, OneObjectMayHaveTheBaseAndAnotherTheScaling) {
  const std::string scaling =
      R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6, "mscale_all_dim": 0.7})";
  const auto width = [&] { return read().config.model.attention.of<config::DotOptions>().scale_width; };
  copy("deepseek_v2");
  set("/rope_parameters", "null");
  set("/rope_scaling", scaling);
  const double alone = width();
  EXPECT_GT(alone, 0.0);
  set("/rope_parameters", R"({"rope_theta": 10000.0})");
  EXPECT_EQ(width(), alone);
  set("/rope_parameters", R"({"rope_theta": 10000.0, "rope_type": "yarn", "factor": 5.0})");
  EXPECT_HAS(refusal(), "rope_scaling.factor contradicts rope_parameters.factor, which is 5");

  copy("gemma3_text_scaled");
  const auto base = [&] { return read().config.model.of_layer(1).attention.of<config::PositionOptions>().rope_base; };
  set("/rope_parameters", "null");
  set("/rope_scaling", R"({"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0})");
  EXPECT_EQ(base(), 500.0);
  set("/rope_theta", "501.0");
  EXPECT_HAS(refusal(), "rope_theta contradicts rope_scaling.rope_theta, which is 500");
}

TEST_F(HuggingfaceFolder, AnAliasMayStandAlone) {
  copy("gpt2");
  change_config([](Json& json) {
    json["hidden_size"] = json.at("n_embd");
    json.erase("n_embd");
  });
  EXPECT_EQ(read().config.model.d_model, 16);
  set("/n_embd", "17");
  EXPECT_HAS(refusal(), "hidden_size must be equal to n_embd, another name of the setting, got 16");
}

// The expected values are the defaults of transformers' classes.
TEST_F(HuggingfaceFolder, AMissingKeyHasTheDefaultOfItsKind) {
  const auto without = [&](const char* model, const char* key) {
    copy(model);
    change_config([&](Json& json) { json.erase(key); });
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
             {"mistral", "num_key_value_heads", "must divide num_attention_heads = 4, got 8, the default"},
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

TEST_F(HuggingfaceFolder, RefusesSettingsWithoutAnEquivalentByName) {
  const struct {
    const char *model, *pointer, *value, *says;
  } all[] = {
      {"gpt2", "/model_type", R"("bert")", "model_type must be one of gpt2, gpt_neox, llama, mistral, ministral, "},
      {"gpt2", "/scale_attn_weights", "false", "scale_attn_weights has no equivalent"},
      {"qwen2", "/rope_parameters", R"({"full_attention": {"rope_theta": 700.0}})",
       "rope_parameters.full_attention has no equivalent"},
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
      {"llama", "/num_key_value_heads", "3", "num_key_value_heads must divide num_attention_heads = 4, got 3"},
      {"gpt2", "/num_hidden_layers", "3", "num_hidden_layers must be equal to n_layer, another name of the setting"},
      {"jetmoe", "/head_dim", "5", "head_dim must be equal to kv_channels"},
      {"gpt_neox", "/head_dim", "5", "head_dim has no equivalent, got 5"},
      {"gpt_oss_yarn", "/rope_scaling", R"({"factor":2.5})", "rope_scaling.factor has no equivalent, got 2.5"},
      {"qwen2", "/layer_types", R"(["sliding_attention"])", "layer_types must be full_attention"},
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
      {"qwen3_next_experts", "/linear_num_key_heads", "3", "linear_num_key_heads must divide linear_num_value_heads"},
      {"qwen3_next_experts", "/num_experts_per_tok", "9",
       "config.json: cannot be read as a model of Headroom: model.layers.0.mlp.top_k: must be at most n_experts = 5"},
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

// The window types of dcformer and dcpythia determine each layer's window.
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
  // model.layers can set windows that window_pattern can express, and others.
  Checkpoint checkpoint = read();
  config::ModelOptions& o = checkpoint.config.model;
  o.attention.window_pattern = "1:0";
  o.layers = {{.repeat = 1, .attention = {{"window", "5"}}, .mlp = {}},
              {.repeat = 1, .attention = {{"window", "0"}}, .mlp = {}}};
  EXPECT_EQ(export_huggingface(checkpoint, folder_ / "out", "run"), "dcformer");
  o.layers[1].attention["window"] = "6";
  EXPECT_HAS(export_refusal(checkpoint), "run: model.attention.window");
  o.layers[1].attention = {{"window", "0"}, {"rope_base", "700.0"}};
  EXPECT_HAS(export_refusal(checkpoint), "run: model.attention.rope_base:");
}

}  // namespace headroom::store::huggingface_settings_test
