#include <fmt/format.h>
#include <gtest/gtest.h>

#include "complaint.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/config.h"

namespace headroom::config {
namespace check_test {

std::string complaint(std::string_view text) {
  return subject_of(complaint_of([&] { check(parse_config(text, "x"), "x"); }));
}

std::string about_attention(const std::string& lines) {
  const std::string text = complaint("[model]\ncontext_length = 128\nmemory_length = 0\n[model.attention]\n" + lines);
  const std::string prefix = "x: model.attention.";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

TEST(Check, TheDefaultPasses) {
  EXPECT_EQ(complaint(""), "no error");
  check(ModelOptions(), "x");
}

TEST(Check, HeadsAndGroups) {
  EXPECT_EQ(about_attention("n_heads = 8\nn_kv_heads = 3"), "n_kv_heads");
  EXPECT_EQ(about_attention("n_heads = 8\nn_kv_heads = 16"), "n_kv_heads");
  EXPECT_EQ(about_attention("n_heads = 8\nn_kv_heads = 2"), "no error");
  EXPECT_EQ(about_attention("n_heads = 8\nn_kv_heads = 1"), "no error");
}

TEST(Check, Experts) {
  const std::string experts = "projection = \"experts\"\n";
  EXPECT_EQ(about_attention(experts + "n_experts = 4\ntop_k = 5"), "top_k");
  EXPECT_EQ(about_attention("n_experts = 4\ntop_k = 5"), "no error");  // "dense" does not use n_experts
  EXPECT_EQ(about_attention(experts + "experts = []"), "experts");
  EXPECT_EQ(about_attention(experts + "experts = [\"v\", \"o\", \"v\"]"), "experts");
  EXPECT_EQ(about_attention(experts + "gate = \"softmax\""), "gate");
  EXPECT_EQ(about_attention(experts + "gate = \"softmax_top_k\""), "no error");
  EXPECT_EQ(about_attention(experts + "n_kv_heads = 4"), "n_kv_heads");
  EXPECT_EQ(about_attention(experts + "n_kv_heads = 4\nexperts = [\"q\", \"o\"]"), "no error");
  EXPECT_EQ(about_attention(experts + "n_kv_heads = 8\nshared_selection = true"), "no error");
  EXPECT_EQ(about_attention("shared_selection = true"), "shared_selection");
  for (int subset = 1; subset < 16; ++subset) {  // every subset of projections is valid
    std::string list;
    for (int i = 0; i < 4; ++i) {
      list += (subset >> i & 1) != 0 ? fmt::format("\"{}\",", "qkvo"[i]) : "";
    }
    EXPECT_EQ(about_attention(experts + "experts = [" + list + "]"), "no error") << list;
  }
}

TEST(Check, RotaryScaling) {
  const std::string rope = "position = \"rope\"\n", scaled = rope + "rope_factor = 4.0\nrope_scaling = ";
  EXPECT_EQ(about_attention(scaled + "\"linear\""), "no error");
  EXPECT_EQ(about_attention(scaled + "\"yarn\""), "rope_original_length");
  EXPECT_EQ(about_attention(scaled + "\"llama3\""), "rope_original_length");
  const std::string llama3 = scaled + "\"llama3\"\nrope_original_length = 64\n";
  EXPECT_EQ(about_attention(llama3), "no error");
  EXPECT_EQ(about_attention(llama3 + "rope_low_freq_factor = 4.0"), "rope_low_freq_factor");
  EXPECT_EQ(about_attention("position = \"none\"\nrope_scaling = \"linear\""), "rope_scaling");
}

TEST(Check, BiasesOnTheScores) {
  for (const std::string position : {"alibi", "forgetting"}) {
    const std::string line = "position = \"" + position + "\"\n";
    EXPECT_EQ(about_attention(line + "n_heads = 6\nqk_norm = true\nwindow = 8"), "no error");
    EXPECT_EQ(about_attention(line + "score = \"linear\""), "position");
    EXPECT_EQ(about_attention(line + "projection = \"routed_heads\"\nn_heads = 2\ntop_k = 2"), "position");
    EXPECT_EQ(complaint("[model]\nkind = \"masked_language_model\"\n[model.attention]\n" + line),
              "x: model.attention.position");
  }
  const std::string forgetting = "position = \"forgetting\"\n", head = forgetting + "forget = \"head\"\n";
  EXPECT_EQ(about_attention("forget = \"head\""), "forget");
  EXPECT_EQ(about_attention(head + "forget_times = [1, 100]"), "no error");
  EXPECT_EQ(about_attention(head + "forget_times = [1]"), "forget_times");
  EXPECT_EQ(about_attention(forgetting + "forget_times = [1, 100]"), "forget_times");
}

TEST(Check, HeadOutputs) {
  EXPECT_EQ(about_attention("exclusive = true\nn_kv_heads = 2"), "no error");
  EXPECT_EQ(about_attention("exclusive = true\nprojection = \"latent\""), "exclusive");
  EXPECT_EQ(about_attention("gate_channels = 12"), "gate_channels");
  EXPECT_EQ(about_attention("gate_output = \"head\"\ngate_channels = 12\nexclusive = true"), "no error");
  EXPECT_EQ(about_attention("gate_output = \"head\"\ngate_channels = 60000"), "gate_channels");
}

TEST(Check, DifferentialHeads) {
  const std::string differential = "composition = \"differential\"\n";
  const auto key = [&](const std::string& lines) {
    const std::string text = about_attention(lines);
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(key(differential), "no error");
  EXPECT_EQ(key(differential + "differential_version = 1\nscore = \"sigmoid\""), "no error");
  EXPECT_EQ(key(differential + "score = \"gaussian_mixture\"\nkeys = \"single\""), "no error");
  EXPECT_NE(key(differential + "differential_version = 3"), "no error");
  EXPECT_EQ(key("differential_version = 1"), "differential_version");
  for (const char* other :
       {"score = \"linear\"", "score = \"gaussian_mixture\"", "projection = \"latent\"\nkv_rank = 8",
        "projection = \"routed_heads\"\nn_heads = 2\ntop_k = 2"}) {
    EXPECT_EQ(key(differential + other), "composition") << other;
  }
}

TEST(Check, RepeatedLayers) {
  const auto key = [](const std::string& model, const std::string& rest = "") {
    const std::string text = complaint("[model]\nn_layers = 6\n" + model + "\n" + rest);
    const std::string prefix = "x: model.";
    return text.starts_with(prefix) ? text.substr(prefix.size(), text.find(": ", prefix.size()) - prefix.size()) : text;
  };
  EXPECT_EQ(key("n_groups = 2"), "no error");
  EXPECT_EQ(key("n_groups = 4"), "n_groups");
  EXPECT_EQ(key("n_groups = 2\nkind = \"encoder_decoder\""), "n_groups");
  const std::string windows = "[model.attention]\nwindow = 16\nwindow_pattern = \"2:1\"";
  EXPECT_EQ(key("n_groups = 3", windows), "no error");
  EXPECT_EQ(key("n_groups = 2", windows), "n_groups");
  EXPECT_EQ(key("n_groups = 2", "[[model.layers]]\n[[model.layers]]\n[[model.layers]]\nattention = {window = 8}"),
            "n_groups");
  EXPECT_EQ(key("n_groups = 2", "[model.attention]\nscore = \"gaussian_mixture\"\nprior_update = \"soft_e\""),
            "attention.prior_update");
  const std::string experts = "[model.mlp]\nkind = \"experts\"\n";
  EXPECT_EQ(key("norm_position = \"peri\"", experts), "no error");
  EXPECT_EQ(key("norm_position = \"peri\""), "norm_position");
  EXPECT_EQ(key("norm_position = \"peri\"\narrangement = \"parallel\"", experts), "norm_position");
  EXPECT_EQ(key("norm_position = \"peri\"\nkind = \"encoder_decoder\"", experts), "norm_position");
  EXPECT_EQ(key("norm_position = \"peri\"", experts + "[model.attention]\nprojection = \"latent\"\nkv_rank = 8"),
            "norm_position");
  EXPECT_EQ(key("norm_position = \"peri\"", experts + "[model.attention]\nprojection = \"tied\""),
            "attention.projection");
}

TEST(Check, DropoutInsideTheMlp) {
  const auto about = [](const std::string& lines) {
    return complaint("[model]\ndropout = 0.2\n[model.mlp]\n" + lines);
  };
  const auto used = [](const std::string& lines) {
    return parse_config("[model]\ndropout = 0.2\n[model.mlp]\n" + lines, "x").model.hidden_dropout();
  };
  EXPECT_EQ(used(""), 0.2);
  EXPECT_EQ(used("dropout = 0.0"), 0.0);
  EXPECT_EQ(used("dropout = 0.1"), 0.1);
  EXPECT_EQ(about("kind = \"experts\""), "no error");
  EXPECT_EQ(about("kind = \"experts\"\ndropout = 0.1"), "x: model.mlp.dropout");
  EXPECT_NE(about("dropout = 1.0"), "no error");
}

TEST(Check, AStepReadsAsManyWholeSequencesAsFitItsTokens) {
  Config config;
  config.model.context_length = 256;
  config.train.batch_size = 160;
  EXPECT_EQ(config.whole_sequences(), 160);
  config.train.batch_tokens = 4096;
  EXPECT_EQ(config.whole_sequences(), 16);
  config.train.batch_size = 8;
  EXPECT_EQ(config.whole_sequences(), 8);
}

// Each pair holds TOML lines and the key that the error names.
TEST(Check, FactoredTiedAndGroupedLatentHeads) {
  const std::string factored = "projection = \"factored\"\nkv_rank = 2\n", tied = "projection = \"tied\"\n",
                    latents = "projection = \"latent\"\nlatent_groups = 2\n";
  for (const std::string& lines : {factored, factored + "q_rank = 40", tied + "n_kv_heads = 2\nbias = true", latents}) {
    EXPECT_EQ(about_attention(lines), "no error");
  }
  const std::pair<std::string, std::string> wrong[] = {
      {"projection = \"factored\"", "kv_rank"},  // the default kv_rank is the width of latents
      {factored + "n_kv_heads = 2", "n_kv_heads"},
      {factored + "bias = true", "bias"},
      {factored + "qk_norm = true", "qk_norm"},
      {factored + "score = \"gaussian_mixture\"", "keys"},
      {factored + "d_rotary = 4", "d_rotary"},
      {tied + "n_kv_heads = 3", "n_kv_heads"},
      {tied + "d_head = 7\nposition = \"none\"", "d_head"},
      {tied + "d_head = 6", "rope_fraction"},  // 3 rotating channels
      {tied + "rope_fraction = 0.5", "rope_fraction"},
      {tied + "qk_norm = true", "qk_norm"},
      {tied + "score = \"gaussian_mixture\"", "keys"},
      {tied + "kv_rank = 4", "kv_rank"},
      {latents + "kv_rank = 63", "latent_groups"},
      {latents + "n_heads = 3", "latent_groups"},
      {"latent_groups = 2", "latent_groups"}};
  for (const auto& [lines, key] : wrong) {
    EXPECT_EQ(about_attention(lines), key) << lines;
  }
}

TEST(Check, RoutedHeads) {
  const std::string routed = "projection = \"routed_heads\"\nn_heads = 2\ntop_k = 2\nn_experts = 8\n";
  EXPECT_EQ(about_attention(routed), "no error");
  EXPECT_EQ(about_attention(routed + "gate = \"softmax\"\nn_kv_heads = 1"), "no error");
  EXPECT_EQ(about_attention(routed + "gate = \"softmax_renormalised\""), "no error");
  EXPECT_EQ(about_attention("projection = \"routed_heads\"\nn_heads = 6\nn_kv_heads = 3\nn_experts = 8"), "no error");
  EXPECT_EQ(about_attention("projection = \"routed_heads\"\nn_heads = 6\nn_kv_heads = 3\ntop_k = 6\nn_experts = 8"),
            "top_k");
  EXPECT_EQ(about_attention("projection = \"routed_heads\"\nn_heads = 3\ntop_k = 2\nn_experts = 8"), "top_k");
  Config derived = parse_config("[model.attention]\nprojection = \"routed_heads\"\nn_heads = 3", "x");
  EXPECT_EQ(derived.model.attention.of<RoutingOptions>().top_k, 3);
  set_key(derived, "model.attention.n_heads=4");
  EXPECT_EQ(derived.model.attention.of<RoutingOptions>().top_k, 4);
  set_key(derived, "model.attention.top_k=3");
  EXPECT_EQ(derived.model.attention.of<RoutingOptions>().top_k, 3);
  EXPECT_EQ(about_attention("projection = \"routed_heads\"\nn_heads = 9\ntop_k = 9\nn_experts = 8"), "top_k");
  EXPECT_EQ(about_attention("projection = \"routed_heads\"\nn_heads = 4\ntop_k = 4\nn_kv_heads = 2"), "top_k");
  EXPECT_EQ(about_attention("projection = \"routed_heads\"\nn_heads = 4\ntop_k = 1\nn_kv_heads = 3"), "n_kv_heads");
  EXPECT_EQ(about_attention(routed + "shared_selection = true"), "shared_selection");
  EXPECT_EQ(about_attention(routed + "composition = \"dynamic\""), "composition");
}

TEST(Check, RoutedQueries) {
  const std::string routed = "projection = \"routed_queries\"\nn_heads = 8\n";
  EXPECT_EQ(about_attention(routed + "n_kv_heads = 2\ntop_k = 3"), "no error");
  EXPECT_EQ(about_attention(routed + "n_kv_heads = 1\ntop_k = 8\nposition = \"relative\""), "no error");
  EXPECT_EQ(about_attention(routed + "top_k = 1"), "n_kv_heads");
  EXPECT_EQ(about_attention(routed + "n_kv_heads = 3"), "n_kv_heads");
  EXPECT_EQ(about_attention(routed + "n_kv_heads = 4\ntop_k = 3"), "top_k");
  EXPECT_EQ(about_attention(routed + "n_kv_heads = 2\ngate = \"softmax_top_k\""), "gate");
  EXPECT_EQ(about_attention(routed + "n_kv_heads = 2\ncomposition = \"dynamic\""), "composition");
}

TEST(Check, SharedAndRoutedHeads) {
  const std::string routed = "projection = \"shared_and_routed\"\nn_heads = 8\n";
  EXPECT_EQ(about_attention(routed), "no error");
  EXPECT_EQ(about_attention(routed + "shared_heads = 0\ntop_k = 8\nn_kv_heads = 2\nqk_norm = true"), "no error");
  EXPECT_EQ(about_attention(routed + "shared_heads = 8"), "shared_heads");
  EXPECT_EQ(about_attention(routed + "shared_heads = 3\ntop_k = 6"), "top_k");
  EXPECT_EQ(about_attention("shared_heads = 3"), "shared_heads");
}

TEST(Check, SparseHeads) {
  const std::string sparse = "projection = \"sparse_heads\"\n";
  EXPECT_EQ(about_attention(sparse), "projection");
  const auto about = [&](const std::string& lines) {
    return complaint("[model]\nkind = \"masked_language_model\"\n[model.attention]\n" + sparse + lines);
  };
  EXPECT_EQ(about("sparsity = 8\ninclude_first = true\ndense_heads = 2\nsink = true"), "no error");
  EXPECT_EQ(about("n_kv_heads = 2"), "x: model.attention.n_kv_heads");
  EXPECT_EQ(about("score = \"sigmoid\""), "x: model.attention.score");
  EXPECT_EQ(about("composition = \"static\""), "x: model.attention.composition");
  EXPECT_EQ(about_attention("dense_heads = 2"), "dense_heads");
}

TEST(Check, Scores) {
  const std::string gaussian = "score = \"gaussian_mixture\"\n", linear = "score = \"linear\"\n";
  EXPECT_EQ(about_attention("keys = \"shifted\""), "keys");
  EXPECT_EQ(about_attention("keys = \"single\""), "keys");
  EXPECT_EQ(about_attention(gaussian + "keys = \"shifted\"\nmixing = \"max\"\nmixture_score = \"dot\""), "no error");
  EXPECT_EQ(about_attention(linear + "keys = \"single\""), "no error");
  EXPECT_EQ(about_attention(linear + "mixing = \"max\""), "mixing");
  EXPECT_EQ(about_attention("mixture_score = \"dot\""), "mixture_score");
  EXPECT_EQ(about_attention(gaussian + "prior_update = \"soft_e\""), "no error");
  EXPECT_EQ(about_attention(gaussian + "prior_update = \"soft_e\"\nprior = \"none\""), "prior_update");
  EXPECT_EQ(about_attention(linear + "composition = \"static\""), "composition");
  EXPECT_EQ(about_attention(linear + "position = \"relative\""), "position");
  EXPECT_EQ(about_attention(linear + "window = 8"), "window");
}

TEST(Check, Composition) {
  const std::string dynamic = "composition = \"dynamic\"\n";
  EXPECT_EQ(about_attention(dynamic), "no error");
  EXPECT_EQ(about_attention(dynamic + "projection = \"experts\""), "no error");
  EXPECT_EQ(about_attention(dynamic + "compose = []"), "compose");
  EXPECT_EQ(about_attention("compose = []"), "no error");
  EXPECT_EQ(about_attention(dynamic + "compose = [\"pre\", \"pre\"]"), "compose");
  EXPECT_EQ(about_attention(dynamic + "compose_gates = [\"key\", \"key\"]"), "compose_gates");
  EXPECT_EQ(about_attention(dynamic + "compose_groups = 3"), "compose_groups");
  EXPECT_EQ(about_attention(dynamic + "compose_groups = 4\ncompose_low_rank = []"), "no error");
  EXPECT_EQ(about_attention(dynamic + "compose_low_rank = []\ncompose_gates = []"), "compose_low_rank");
  EXPECT_EQ(about_attention("compose_static = true"), "compose_static");
}

TEST(Check, Positions) {
  EXPECT_EQ(about_attention("position_bias = true"), "position_bias");
  EXPECT_EQ(about_attention("position = \"relative\"\nposition_bias = true"), "no error");
  EXPECT_EQ(complaint("[model]\ncontext_length = 64\nmemory_length = 64\nattention.position = \"learned\""),
            "x: model.attention.position");
  EXPECT_EQ(about_attention("position = \"learned\""), "no error");
}

TEST(Check, RotatingChannelsArePairs) {
  const auto rope = [](int d_head, const char* fraction) {
    return about_attention(fmt::format("d_head = {}\nrope_fraction = {}", d_head, fraction));
  };
  EXPECT_EQ(rope(41, "1.0"), "rope_fraction");
  EXPECT_EQ(rope(42, "0.5"), "rope_fraction");
  EXPECT_EQ(rope(3, "0.5"), "rope_fraction");
  EXPECT_EQ(rope(1, "0.5"), "rope_fraction");
  EXPECT_EQ(rope(41, "0.5"), "no error");   // 20 channels
  EXPECT_EQ(rope(205, "0.5"), "no error");  // 102 channels
  EXPECT_EQ(rope(60, "0.1"), "no error");   // 6 channels, although 0.1 is inexact
  EXPECT_EQ(about_attention("d_head = 41\nposition = \"relative\""), "no error");
}

TEST(Check, Windows) {
  for (const char* pattern : {"", "1", "1:", ":1", "a:b", "1:1:1", "-1:1", "0:0", "1 : 1", "1:99999999999999999999"}) {
    EXPECT_EQ(about_attention(fmt::format("window = 8\nwindow_pattern = \"{}\"", pattern)), "window_pattern");
  }
  EXPECT_EQ(about_attention("window_pattern = \"3:1\""), "window");
  EXPECT_EQ(about_attention("window = 8\nwindow_pattern = \"3:1\""), "no error");
}

TEST(Check, Model) {
  EXPECT_EQ(complaint("[model]\ncontext_length = 128\nmemory_length = 100"), "x: model.memory_length");
  EXPECT_EQ(complaint("[model]\ncontext_length = 128\nmemory_length = 128"), "no error");
  EXPECT_EQ(complaint("[model]\nkind = \"classifier\"\nn_classes = 2\ncontext_length = 128\nmemory_length = 128"),
            "x: model.memory_length");
  EXPECT_EQ(complaint("[model]\ncontext_length = 128\nmemory_length = 128\n[data]\nbatching = \"chunks\""),
            "x: data.batching");
  EXPECT_EQ(complaint("[model.mlp]\nkind = \"experts\"\nn_experts = 4\ntop_k = 5"), "x: model.mlp.top_k");
  EXPECT_EQ(complaint("[model.mlp]\nn_experts = 4\ntop_k = 5"), "no error");
}

TEST(Check, KeysOfOtherModelKinds) {
  EXPECT_EQ(complaint("[model]\nn_decoder_layers = 2"), "x: model.n_decoder_layers");
  EXPECT_EQ(complaint("[model]\nkind = \"encoder_decoder\"\nn_decoder_layers = 2"), "no error");
  EXPECT_EQ(complaint("[model]\nsource_vocabulary_size = 9"), "x: model.source_vocabulary_size");
  EXPECT_EQ(complaint("[model]\nkind = \"encoder_decoder\"\nsource_vocabulary_size = 9"), "no error");
  EXPECT_EQ(complaint("[model]\nn_classes = 2"), "x: model.n_classes");
  EXPECT_EQ(complaint("[model]\nd_head_hidden = 2"), "x: model.d_head_hidden");
  EXPECT_EQ(complaint("[model]\npatch_size = 2"), "x: model.patch_size");
  const std::string classifier = "[model]\nkind = \"classifier\"\n", vision = "[model]\nkind = \"vision\"\n";
  const std::string patches = vision + "n_classes = 2\nimage_size = 32\npatch_size = 8\n";
  EXPECT_EQ(complaint(classifier), "x: model.n_classes");
  EXPECT_EQ(complaint(classifier + "n_classes = 2\nd_head_hidden = 8\npaired = true"), "no error");
  EXPECT_EQ(complaint(classifier + "n_classes = 2\n[data]\nclasses = [\"no\", \"no\"]"), "x: data.classes");
  EXPECT_EQ(complaint(classifier + "n_classes = 2\ntied_embeddings = true"), "x: model.tied_embeddings");
  EXPECT_EQ(complaint(classifier + "n_classes = 2\nimage_size = 8"), "x: model.image_size");
  EXPECT_EQ(complaint(patches + "head_activation = \"gelu\""), "x: model.head_activation");
  EXPECT_EQ(complaint(vision + "n_classes = 2\nimage_size = 32\npatch_size = 8\nd_model = 30\n"
                               "[model.attention]\nposition = \"sinusoidal\""),
            "x: model.d_model");
  EXPECT_EQ(complaint("[model]\nkind = \"masked_language_model\"\n[model.attention]\nwindow = 8"),
            "x: model.attention.window");
  EXPECT_EQ(complaint("[model]\nkind = \"encoder_decoder\"\n[model.attention]\nwindow = 8"), "no error");
  EXPECT_EQ(complaint(patches + "paired = true"), "x: model.paired");
  EXPECT_EQ(complaint(vision + "n_classes = 2\nimage_size = 32"), "x: model.patch_size");
  EXPECT_EQ(complaint(vision + "n_classes = 2\nimage_size = 32\npatch_size = 5"), "x: model.patch_size");
  EXPECT_EQ(complaint(patches + "context_length = 128"), "x: model.context_length");
  EXPECT_EQ(complaint(patches + "context_length = 16"), "no error");
  EXPECT_EQ(complaint(patches), "no error");
  Config derived = parse_config(patches, "x");
  EXPECT_EQ(derived.model.context_length, 16);
  set_key(derived, "model.patch_size=4");
  EXPECT_EQ(derived.model.context_length, 64);
  set_key(derived, "model.context_length=63");
  EXPECT_EQ(derived.model.context_length, 63);
}

TEST(Check, AdaptiveCutoffs) {
  const auto cutoffs = [](const char* list) {
    return complaint(fmt::format("[model]\nvocabulary_size = 8000\nadaptive_cutoffs = {}", list));
  };
  EXPECT_EQ(cutoffs("[]"), "no error");
  EXPECT_EQ(cutoffs("[1, 2000, 7999]"), "no error");
  EXPECT_EQ(cutoffs("[2000, 2000]"), "x: model.adaptive_cutoffs");
  EXPECT_EQ(cutoffs("[2000, 1000]"), "x: model.adaptive_cutoffs");
  EXPECT_EQ(cutoffs("[2000, 8000]"), "x: model.adaptive_cutoffs");
  EXPECT_EQ(complaint("[model]\nkind = \"classifier\"\nn_classes = 2\nadaptive_cutoffs = [5]"),
            "x: model.adaptive_cutoffs");
}

TEST(Check, TokenizerAgainstModel) {
  EXPECT_EQ(complaint("tokenizer.kind = \"bytes\"\nmodel.vocabulary_size = 8000"), "x: model.vocabulary_size");
  EXPECT_EQ(complaint("tokenizer.kind = \"bytes\"\nmodel.vocabulary_size = 256"), "no error");
  EXPECT_EQ(complaint("tokenizer.kind = \"bytes\"\nmodel.vocabulary_size = 205\ntokenizer.vocabulary_size = 205"),
            "no error");
  EXPECT_EQ(complaint("tokenizer.kind = \"bytes\"\nmodel.vocabulary_size = 205\ntokenizer.vocabulary_size = 256"),
            "x: model.vocabulary_size");
  EXPECT_EQ(complaint("model.vocabulary_size = 2000\ntokenizer.vocabulary_size = 8000"), "x: model.vocabulary_size");
  EXPECT_EQ(complaint("model.vocabulary_size = 2000\ntokenizer.model = \"a.model\""), "no error");
  EXPECT_EQ(complaint("tokenizer.kind = \"words\"\ntokenizer.vocabulary_size = 0"), "no error");
  EXPECT_EQ(complaint("tokenizer.vocabulary_size = 0"), "x: tokenizer.vocabulary_size");
}

TEST(Check, Training) {
  for (const std::string device : {"auto", "cpu", "cuda", "cuda:0", "cuda:15"}) {
    EXPECT_EQ(complaint("train.device = \"" + device + "\""), "no error");
  }
  for (const std::string device : {"", "gpu", "cuda:", "cuda:x", "cuda:1000", "cpu:0"}) {
    EXPECT_EQ(complaint("train.device = \"" + device + "\""), "x: train.device");
  }
  EXPECT_EQ(complaint("train.batch_size = 10\ntrain.accumulate = 4"), "x: train.accumulate");
  EXPECT_EQ(complaint("train.betas = [0.9]"), "x: train.betas");
  EXPECT_EQ(complaint("train.steps = 10\ntrain.warmup_steps = 11"), "x: train.warmup_steps");
  EXPECT_EQ(complaint("data.json_field = \"\""), "x: data.json_field");
  const std::string two = "data.train = [\"a.txt\", \"b.txt\"]\n";
  EXPECT_EQ(complaint(two + "data.mixture = [1, 2]"), "no error");
  EXPECT_EQ(complaint(two + "data.mixture = [1]"), "x: data.mixture");
  EXPECT_EQ(complaint("data.mixture = [1]"), "x: data.mixture");
  EXPECT_EQ(complaint(two + "data.mixture = [1, 2]\nmodel.kind = \"masked_language_model\""), "x: data.mixture");
  EXPECT_EQ(complaint("train.label_smoothing = 0.1"), "x: train.label_smoothing");
  EXPECT_EQ(complaint("train.optimizer = \"muon\"\ntrain.muon_learning_rate = 0.02"), "no error");
  EXPECT_EQ(complaint("train.muon_learning_rate = 0.02"), "x: train.muon_learning_rate");
  EXPECT_EQ(complaint("train.optimizer = \"muon\"\ntrain.muon_momentum = 0.9"), "no error");
  EXPECT_EQ(complaint("train.muon_momentum = 0.9"), "x: train.muon_momentum");
  EXPECT_EQ(complaint("train.shard = \"none\""), "no error");  // written by earlier versions
  EXPECT_NE(complaint("train.shard = \"optimizer\""), "no error");
  EXPECT_EQ(complaint("data.shuffle_buffer = 10"), "no error");  // older runs that are still evaluated have it
  EXPECT_EQ(complaint("train.gradient_accumulators = 2\ntrain.accumulate = 4"), "no error");
  EXPECT_EQ(complaint("train.gradient_accumulators = 3\ntrain.accumulate = 4"), "x: train.gradient_accumulators");
  EXPECT_EQ(complaint("train.sample_every = 5"), "no error");
  EXPECT_EQ(complaint("model.kind = \"masked_language_model\"\ntrain.sample_every = 5"), "x: train.sample_every");
  EXPECT_EQ(complaint("train.batch_tokens = 4096"), "x: train.batch_tokens");
  const std::string translating = "model.kind = \"encoder_decoder\"\ntrain.label_smoothing = 0.1\n";
  EXPECT_EQ(complaint(translating + "train.accumulate = 2\ntrain.batch_tokens = 256"), "no error");
  EXPECT_EQ(complaint(translating + "train.accumulate = 2\ntrain.batch_tokens = 255"), "x: train.batch_tokens");
}

TEST(Check, ImageAugmentation) {
  for (const char* key : {"augment_crop", "randaugment", "mixup"}) {
    EXPECT_EQ(complaint(fmt::format("data.{} = 1", key)), fmt::format("x: data.{}", key));
  }
}

TEST(Check, PairsAndTheirTokenizers) {
  const std::string translating = "model.kind = \"encoder_decoder\"\n";
  EXPECT_EQ(complaint(translating + "data.max_length_ratio = 1.5\ndata.max_words = 175"), "no error");
  EXPECT_EQ(complaint(translating + "data.max_length_ratio = 0.5"), "x: data.max_length_ratio");
  EXPECT_EQ(complaint("data.max_length_ratio = 1.5"), "x: data.max_length_ratio");
  EXPECT_EQ(complaint("data.max_words = 175"), "x: data.max_words");
  EXPECT_EQ(complaint(translating + "data.validation_target = [\"s.en\"]"), "x: data.validation_target");
  EXPECT_EQ(complaint(translating + "tokenizer.source_model = \"de.model\""), "x: tokenizer.source_model");
  EXPECT_EQ(complaint(translating + "tokenizer.source_model = \"de.model\"\nmodel.source_vocabulary_size = 9"),
            "no error");
}

}  // namespace check_test
}  // namespace headroom::config
