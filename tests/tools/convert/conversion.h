// A tiny dense model and its conversions.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "folder_test.h"
#include "headroom/models/language_model.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/open_model.h"
#include "tiny/folder.h"
#include "tiny/options.h"
#include "tools/convert/convert.h"
#include "training/train/loop/train.h"

namespace headroom::convert {

namespace fs = std::filesystem;

inline at::Tensor random_tensor(at::IntArrayRef sizes, std::uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

// Holds the training text and a run of each config that a test has trained.
struct TrainedRuns {
  tiny::Folder folder;
  std::map<std::string, fs::path> runs;  // by config
  TrainedRuns() {
    std::string text;
    for (int line = 0; line < 4000; ++line) {
      text += fmt::format("line {} says {} and {}\n", line, line * line % 97, line % 7 == 0 ? "stops" : "goes on");
    }
    std::ofstream(folder / "text.txt") << text;
  }
};

class ConvertTest : public FolderTest {
 protected:
  static TrainedRuns& trained() {
    static TrainedRuns all;
    return all;
  }
  static std::string text() { return (trained().folder / "text.txt").string(); }

  // Returns the config of a dense run with these keys of [model.attention].
  config::Config dense(const std::string& attention = "") const {
    const config::ModelOptions model = tiny::model(
        {.vocabulary = 256, .d_model = 24, .context_length = 32, .n_heads = 4, .d_head = 6, .d_hidden = 32});
    config::Config c = tiny::config_of(tiny::changed(model, attention));
    c.data.train = {text()};
    tiny::set(c,
              "train.steps=30 train.batch_size=8 train.learning_rate=1e-2 train.evaluate_every=0 "
              "train.checkpoint_every=0");
    return c;
  }

  void train(const config::Config& config) const {
    const auto [run, fresh] = trained().runs.try_emplace(config::to_toml(config));
    if (fresh) {
      run->second = trained().folder / fmt::format("run{}", trained().runs.size());
      train::train({.config = config, .out = run->second, .cache = trained().folder / "cache"});
    }
    fs::copy(run->second, folder_ / "dense", fs::copy_options::recursive);
  }

  ConvertRequest request(const std::string& attention) const {
    ConvertRequest r{.source = (folder_ / "dense").string(), .to = "target.toml", .target = dense(attention)};
    r.tokens = 4096;
    r.fit_steps = 40;
    r.joint_steps = 10;
    r.out = folder_ / "converted.safetensors";
    r.cache = folder_ / "cache";
    return r;
  }

  at::Tensor logits(const std::string& run) const {
    const at::NoGradGuard guard;
    const store::OpenedModel opened = store::open_model(run, {.threads = 1, .precision = config::Precision::fp32});
    models::Memory memory;
    return models::as_language_model(*opened.model, "test")
        .logits(at::arange(64, at::kLong).view({2, 32}) * 3 % 256, memory, {});
  }

  void expect_refused(const ConvertRequest& r, const std::string& part) const {
    EXPECT_HAS(user_error_of([&] { convert(r); }), part);
    EXPECT_FALSE(fs::exists(r.out));
  }
};

}  // namespace headroom::convert
