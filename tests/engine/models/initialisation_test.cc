// Tests the initialisation of whole models.
#include "headroom/models/classifier.h"
#include "headroom/models/language_model.h"
#include "headroom/models/masked_language_model.h"
#include "starts.h"
#include "tiny/options.h"

namespace headroom::models::initialisation_test {

using testing::constant;
using testing::expect_start;
using testing::normal;
using testing::truncated;
using testing::uniform;

constexpr std::int64_t kWidth = 64;

config::ModelOptions small(const std::string& keys = "") {
  config::ModelOptions o = tiny::model({.vocabulary = 300,
                                        .n_layers = 3,
                                        .d_model = kWidth,
                                        .context_length = 16,
                                        .n_heads = 4,
                                        .d_head = 12,
                                        .d_hidden = 80});
  o.n_classes = 8;
  return tiny::changed(o, "", keys);
}

double fan(std::int64_t in) {
  return 1.0 / std::sqrt(static_cast<double>(in));
}

TEST(Initialisation, LanguageModels) {
  const LanguageModel model(small("attention.position=learned adaptive_cutoffs=[100,150,200,250,280]"), 1);
  const nn::Parameters& p = model.parameters();
  expect_start("embed", p.at("embed"), normal(fan(kWidth)));
  expect_start("position", p.at("position"), normal(fan(kWidth)));
  expect_start("head.w", p.at("head.w"), uniform(fan(kWidth)));
  expect_start("head.b", p.at("head.b"), uniform(fan(kWidth)));
  expect_start("head.w_cluster", p.at("head.w_cluster"), uniform(fan(kWidth)));
  expect_start("norm_f.scale", p.at("norm_f.scale"), constant(1));
  expect_start("norm_f.bias", p.at("norm_f.bias"), constant(0));
}

// A composed model must have the same initial layers, MLP, embedding and head as a dense one.
TEST(Initialisation, ComposedModelsStartAsDenseOnes) {
  const double in = std::sqrt(2.0 / (3 * kWidth));
  for (const auto composition : {"none", "dynamic"}) {
    const LanguageModel model(small(std::string("attention.composition=") + composition), 1);
    const nn::Parameters& p = model.parameters();
    for (const std::string layer : {"layer0.", "layer1.", "layer2."}) {
      for (const char* name : {"attention.w_q", "attention.w_k", "attention.w_v", "ffn.w_up"}) {
        expect_start(layer + name, p.at(layer + name), truncated(in));
      }
      expect_start(layer + "attention.w_o", p.at(layer + "attention.w_o"), truncated(std::sqrt(2.0 / (3 * 4 * 12))));
      expect_start(layer + "ffn.w_down", p.at(layer + "ffn.w_down"), truncated(std::sqrt(2.0 / (3 * 80))));
      for (const char* name : {"norm_1", "norm_2"}) {
        expect_start(layer + name, p.at(layer + name + ".scale"), constant(1));
        expect_start(layer + name, p.at(layer + name + ".bias"), constant(0));
      }
    }
    expect_start("embed", p.at("embed"), normal(fan(kWidth)));
    expect_start("head.w", p.at("head.w"), uniform(fan(kWidth)));
  }
}

// Transformer-MGK's Long Range Arena models have PyTorch's initialisation with smaller embeddings.
TEST(Initialisation, EmbeddingsMayHaveTheirOwnDeviation) {
  const std::string torch = "kind=classifier attention.position=learned initialisation=torch ";
  const Classifier as_the_rule_says(small(torch), 1), model(small(torch + "embedding_std=0.02"), 1);
  expect_start("embed", as_the_rule_says.parameters().at("embed"), normal(1.0));
  expect_start("embed", model.parameters().at("embed"), normal(0.02));
  expect_start("position", model.parameters().at("position"), normal(0.02));
  expect_start("w_q", model.parameters().at("layer0.attention.w_q"), uniform(fan(kWidth)));
}

// Pythia uses the initialisations that GPT-NeoX calls "small" and "wang".
TEST(Initialisation, PythiaStartsItsOutputsSmaller) {
  const LanguageModel model(small("initialisation=pythia arrangement=parallel attention.bias=true"), 1);
  const nn::Parameters& p = model.parameters();
  const double in = std::sqrt(2.0 / (5 * kWidth)), into_stream = 2.0 / (3 * std::sqrt(kWidth));
  for (const char* name : {"embed", "head.w", "layer1.attention.w_q", "layer1.attention.w_v", "layer1.ffn.w_up"}) {
    expect_start(name, p.at(name), normal(in));
  }
  for (const char* name : {"layer1.attention.w_o", "layer1.ffn.w_down"}) {
    expect_start(name, p.at(name), normal(into_stream));
  }
  for (const char* name : {"head.b", "layer1.attention.b_q", "layer1.attention.b_o", "layer1.ffn.b_up"}) {
    expect_start(name, p.at(name), constant(0));
  }
}

TEST(Initialisation, HeadsOfTheOtherModels) {
  const MaskedLanguageModel masked(small("kind=masked_language_model"), 1);
  expect_start("head.w_transform", masked.parameters().at("head.w_transform"), uniform(fan(kWidth)));
  expect_start("norm_embed.scale", masked.parameters().at("norm_embed.scale"), constant(1));

  Classifier classifier(small("kind=classifier d_head_hidden=48"), 1);
  expect_start("head.w_up", classifier.parameters().at("head.w_up"), uniform(fan(kWidth)));
  expect_start("head.w_down", classifier.parameters().at("head.w_down"), uniform(fan(48)));

  const VisionTransformer vision(small("kind=vision image_size=16 patch_size=4 attention.position=learned"), 1);
  expect_start("patch.w", vision.parameters().at("patch.w"), truncated(fan(3 * 4 * 4)));
  expect_start("patch.b", vision.parameters().at("patch.b"), constant(0));
  expect_start("position", vision.parameters().at("position"), normal(fan(kWidth)));
  expect_start("head.w_down", vision.parameters().at("head.w_down"), constant(0));
}

}  // namespace headroom::models::initialisation_test
