// A tiny dense model and its conversions.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "folder_test.h"
#include "headroom/config/config.h"
#include "headroom/models/language_model.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/open_model.h"
#include "tools/convert/convert.h"
#include "training/train/loop/train.h"

namespace headroom::convert {

namespace fs = std::filesystem;

class ConvertTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              fmt::format("convert_{}", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::string text;
    for (int line = 0; line < 4000; ++line) {
      text += fmt::format("line {} says {} and {}\n", line, line * line % 97, line % 7 == 0 ? "stops" : "goes on");
    }
    std::ofstream(folder_ / "text.txt") << text;
  }
  void TearDown() override { fs::remove_all(folder_); }

  config::Config dense() const {
    config::Config c;
    c.model.vocabulary_size = 256;
    c.model.n_layers = 2;
    c.model.d_model = 24;
    c.model.context_length = 32;
    c.model.mlp.d_hidden = 32;
    c.model.attention.n_heads = 4;
    c.model.attention.d_head = 6;
    c.tokenizer.kind = config::TokenizerKind::bytes;
    c.tokenizer.vocabulary_size = 256;
    c.data.train = {(folder_ / "text.txt").string()};
    c.train.steps = 30;
    c.train.batch_size = 8;
    c.train.learning_rate = 1e-2;
    c.train.evaluate_every = 0;
    c.train.checkpoint_every = 0;
    c.train.threads = 1;
    return c;
  }

  void train(const config::Config& config) const {
    train::train({.config = config, .out = folder_ / "dense", .cache = folder_ / "cache"});
  }

  ConvertRequest request(const std::function<void(config::AttentionOptions&)>& change) const {
    ConvertRequest r{.source = (folder_ / "dense").string(), .to = "target.toml", .target = dense()};
    change(r.target.model.attention);
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

  fs::path folder_;
};

}  // namespace headroom::convert
