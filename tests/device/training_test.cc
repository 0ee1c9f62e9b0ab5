// Trains every task on the device and compares its losses with the CPU's. Also tests resuming, evaluation and
// generation.
#include <gtest/gtest.h>

#include <fstream>

#include "headroom/core/json.h"
#include "headroom/decode/generate.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/open_model.h"
#include "tiny/files.h"
#include "training/tasks/task.h"
#include "training/train/loop/train.h"

namespace headroom::device::training_test {

namespace fs = std::filesystem;

class Training : public ::testing::Test {
 protected:
  Training() {
    write_text_file(folder_ / "train.txt", tiny::text(1500));
    write_text_file(folder_ / "validation.txt", tiny::text(400, 2));
    config_ = tiny::config();
    config_.data.train = {(folder_ / "train.txt").string()};
    config_.data.validation = {(folder_ / "validation.txt").string()};
    config_.train.steps = 2;
  }

  void set(const std::string& keys) { tiny::set(config_, keys); }

  // Returns the losses and gradient norms from a run's log.
  struct Logged {
    train::TrainResult result;
    std::vector<double> losses, norms;
  };
  Logged run(const std::string& name, const std::string& device, bool resume = false) {
    config::Config config = config_;
    config.train.device = device;
    Logged logged{train::train(
        {.config = config, .out = folder_ / name, .resume = resume, .cache = folder_ / "cache", .title = name})};
    std::ifstream file(folder_ / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json json = parse_json(line, "metrics");
      if (json.contains("loss")) {
        logged.losses.push_back(json.at("loss"));
        logged.norms.push_back(json.at("gradient_norm"));
      }
    }
    return logged;
  }

  // The limit allows for another order of summation in float32.
  void expect_the_cpus(double limit = 1e-5) {
    const Logged here = run("here", "cpu"), there = run("there", "cuda");
    ASSERT_EQ(there.losses.size(), static_cast<std::size_t>(config_.train.steps));
    ASSERT_EQ(here.losses.size(), there.losses.size());
    for (std::size_t i = 0; i < here.losses.size(); ++i) {
      EXPECT_NEAR(there.losses[i], here.losses[i], limit * here.losses[i]) << "step " << i + 1;
      EXPECT_NEAR(there.norms[i], here.norms[i], 20.0 * limit * here.norms[i]) << "step " << i + 1;
    }
    const tasks::Figures expected = here.result.figures();
    EXPECT_FALSE(expected.empty());
    for (const auto& [figure, value] : there.result.figures()) {
      EXPECT_NEAR(value, expected.at(figure), 100.0 * limit * std::abs(expected.at(figure))) << figure;
    }
  }

  tiny::Folder folder_;
  config::Config config_;
};

TEST_F(Training, LanguageModelsWithMemoryExpertsAndDropout) {
  expect_the_cpus();
}

TEST_F(Training, LanguageModelsInMicroBatchesWithAnAdaptiveSoftmax) {
  set("train.accumulate=2 model.adaptive_cutoffs=[50,120] model.mlp.kind=experts model.mlp.n_experts=3 "
      "model.mlp.top_k=2");
  expect_the_cpus();
}

TEST_F(Training, MaskedLanguageModelsWithRoutedHeads) {
  set("model.kind=masked_language_model model.vocabulary_size=258 model.memory_length=0 model.context_length=24 "
      "model.attention.projection=routed_heads model.attention.position=learned "
      "model.attention.switch_coefficient=0.1 model.attention.z_coefficient=0.1");
  expect_the_cpus();
}

TEST_F(Training, ClassifiersOfSequencesWithMixturesOfKeys) {
  set("data.train=[] data.validation=[] data.generator=listops data.generated_train=20 data.generated_validation=10 "
      "model.kind=classifier model.vocabulary_size=16 tokenizer.vocabulary_size=16 model.context_length=50 "
      "model.memory_length=0 model.n_classes=10 model.attention.projection=dense "
      "model.attention.score=gaussian_mixture model.attention.expert_dropout=0.0");
  expect_the_cpus();
}

TEST_F(Training, ImageClassifiersWithComposedHeads) {
  set("model.kind=vision model.image_size=4 model.patch_size=2 model.image_channels=1 model.context_length=4 "
      "model.memory_length=0 model.n_classes=3 model.attention.projection=dense model.attention.composition=dynamic "
      "model.attention.expert_dropout=0.0 model.attention.position=sinusoidal");
  std::string images("\0\0\x08\x03\0\0\0\x14\0\0\0\x04\0\0\0\x04", 16), labels("\0\0\x08\x01\0\0\0\x14", 8);
  Random random(1);
  for (int i = 0; i < 20; ++i) {
    labels += static_cast<char>(random.below(3));
    for (int pixel = 0; pixel < 16; ++pixel) {
      images += static_cast<char>(random.below(250));
    }
  }
  write_text_file(folder_ / "images", images);
  write_text_file(folder_ / "labels", labels);
  config_.data.train = config_.data.validation = {(folder_ / "images").string(), (folder_ / "labels").string()};
  expect_the_cpus();
}

TEST_F(Training, Translation) {
  std::string pairs;
  Random random(1);
  for (int i = 0; i < 100; ++i) {
    for (const char between : {'\t', '\n'}) {
      for (std::uint64_t words = 1 + random.below(4); words > 0; --words) {
        constexpr const char* kWords[] = {"eins", "zwei", "three", "rot", "blue", "house"};
        pairs += fmt::format("{}{}", kWords[random.below(std::size(kWords))], words > 1 ? ' ' : between);
      }
    }
  }
  write_text_file(folder_ / "pairs.tsv", pairs);
  write_text_file(folder_ / "held_out.tsv", "eins zwei\tone two\nrot\tred\n");
  config_.data.train = {(folder_ / "pairs.tsv").string()};
  config_.data.validation = {(folder_ / "held_out.tsv").string()};
  config_.tokenizer = {};
  set("decoding.beam_size=2 model.kind=encoder_decoder model.vocabulary_size=280 tokenizer.vocabulary_size=280 "
      "model.context_length=16 model.memory_length=0 model.attention.position=sinusoidal train.label_smoothing=0.1");
  expect_the_cpus();
}

TEST_F(Training, CompositionOfHeadsOnItsOwnTask) {
  config_.tokenizer = {.kind = config::TokenizerKind::words, .vocabulary_size = 0};
  config_.vocabulary_follows_tokenizer = true;
  set("data.train=[] data.validation=[] data.generator=composition data.generated_train=200 "
      "data.generated_validation=6 data.batching=chunks model.memory_length=0 model.context_length=256 "
      "model.attention.projection=dense model.attention.composition=dynamic model.attention.expert_dropout=0.0");
  expect_the_cpus();
}

// bfloat16 rounds operands to 8 bits.
TEST_F(Training, Bfloat16MuonAndDropout) {
  set("train.precision=bf16 train.optimizer=muon model.attention.projection=dense");
  expect_the_cpus(2e-3);
}

// Results are not bit-identical, because the summation order of some GPU kernels varies.
TEST_F(Training, ARunResumes) {
  config_.train.steps = 6;
  config_.train.checkpoint_every = 3;
  const Logged whole = run("whole", "cuda");
  fs::create_directories(folder_ / "part" / "checkpoints");
  fs::copy(folder_ / "whole" / "checkpoints" / "step_3.safetensors", folder_ / "part" / "checkpoints");
  const Logged part = run("part", "cuda", /*resume=*/true);
  ASSERT_EQ(part.losses.size(), 3U);
  for (std::size_t i = 0; i < part.losses.size(); ++i) {
    EXPECT_NEAR(part.losses[i], whole.losses[3 + i], 1e-5 * whole.losses[3 + i]) << "step " << i + 4;
  }
}

TEST_F(Training, ATrainedModelWritesAndIsEvaluatedThere) {
  config_.train.sample_every = 1;
  run("run", "cuda");
  const auto opened = [&](const std::string& device) {
    return store::open_model((folder_ / "run").string(), {.device = device, .writes = true});
  };
  const store::OpenedModel there = opened("cuda"), here = opened("cpu");
  const auto text = [](const store::OpenedModel& model, double temperature) {
    return decode::generate(models::as_language_model(*model.model, "test"), *model.checkpoint.tokenizer, "the head",
                            {.tokens = 20, .temperature = temperature, .context = model.context})
        .text;
  };
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_EQ(text(there, temperature), text(here, temperature));
  }
}

}  // namespace headroom::device::training_test
