// Two tiny models on a page of text, to be compared.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tools/compare/compare.h"

namespace headroom::compare {
namespace compare_fixture {

namespace fs = std::filesystem;

class CompareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              fmt::format("compare_{}", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::string text;
    for (int line = 0; line < 120; ++line) {
      text += fmt::format("line {} says {} & <b>\n", line, line * line % 97);
    }
    std::ofstream(folder_ / "train.txt") << text;
    std::ofstream(folder_ / "validation.txt") << text.substr(0, 900);
  }
  void TearDown() override { fs::remove_all(folder_); }

  NamedConfig config(const std::string& name, std::int64_t heads) const {
    NamedConfig named{.name = name, .config = {}};
    config::Config& c = named.config;
    c.model.vocabulary_size = 256;
    c.model.n_layers = 1;
    c.model.d_model = 16;
    c.model.context_length = 16;
    c.model.mlp.d_hidden = 16;
    c.model.attention.n_heads = heads;
    c.model.attention.d_head = 16 / heads;
    c.tokenizer.kind = config::TokenizerKind::bytes;
    c.tokenizer.vocabulary_size = 256;
    c.data.train = {(folder_ / "train.txt").string()};
    c.data.validation = {(folder_ / "validation.txt").string()};
    c.train.steps = 6;
    c.train.batch_size = 4;
    c.train.log_every = 1;
    c.train.checkpoint_every = 2;
    c.train.keep_checkpoints = 10;
    c.train.evaluate_every = 2;
    c.train.threads = 1;
    return named;
  }

  CompareRequest request() const {
    CompareRequest r;
    r.configs = {config("four", 4), config("one", 1)};
    r.out = folder_ / "out";
    r.cache = folder_ / "cache";
    r.sample_tokens = 12;
    r.command = "headroom compare four.toml one.toml";
    return r;
  }

  fs::path folder_;
};

}  // namespace compare_fixture
}  // namespace headroom::compare
