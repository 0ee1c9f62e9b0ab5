// Made-up results for tests of tables and pages, and a fixture with two tiny models and a text for tests that train.
#pragma once

#include <cmath>

#include "folder_test.h"
#include "tiny/options.h"
#include "tools/compare/compare.h"

namespace headroom::compare::testing {

inline ComparedRun example_run(std::string name, double perplexity, std::int64_t attention_macs = 1000) {
  ComparedRun run;
  run.name = std::move(name);
  run.attention_macs = attention_macs;
  run.attention_memory = 500;
  run.executed = {{"step_macs", 3000}};
  TrainedRun& trained = run.trained.emplace_back();
  trained.origin.machine = "a CPU, 2 threads, fp32";
  train::TrainResult& result = trained.result;
  result.steps = run.config.train.steps = 100;
  result.tokens_per_second = 1234.0;
  result.seconds = 60.0;
  result.peak_memory_bytes = std::int64_t{300} << 20;
  result.parameters = 2695764;
  result.parameters_sha256 = "00ff";
  for (std::int64_t step = 20; step <= 100; step += 20) {
    const double excess = std::exp(-static_cast<double>(step) / 30.0);
    result.validation.push_back(
        {step, 0.6 * static_cast<double>(step), {{"loss", std::log(perplexity) + excess}, {"bits_per_byte", 1.5}}});
    tasks::complete(result.validation.back().figures, run.task().figures());
  }
  result.validation.back().figures["perplexity"] = perplexity;
  return run;
}

// As example_run(), with one seed for each perplexity.
inline ComparedRun example_seeds(const std::string& name, const std::vector<double>& perplexities,
                                 std::int64_t attention_macs = 1000) {
  ComparedRun run = example_run(name, perplexities.front(), attention_macs);
  for (std::size_t i = 1; i < perplexities.size(); ++i) {
    run.trained.push_back(example_run(name, perplexities[i]).trained.front());
    run.trained.back().seed = static_cast<std::int64_t>(i) + 1;
  }
  return run;
}

inline CompareResult example_result(std::vector<ComparedRun> runs) {
  CompareResult result;
  result.runs = std::move(runs);
  return result;
}

}  // namespace headroom::compare::testing

namespace headroom::compare::compare_fixture {

namespace fs = std::filesystem;

class CompareTest : public FolderTest {
 protected:
  void SetUp() override {
    std::string text;
    for (int line = 0; line < 120; ++line) {
      text += fmt::format("line {} says {} & <b>\n", line, line * line % 97);
    }
    std::ofstream(folder_ / "train.txt") << text;
    std::ofstream(folder_ / "validation.txt") << text.substr(0, 900);
  }

  NamedConfig config(const std::string& name, std::int64_t heads) const {
    const config::ModelOptions model = tiny::model({.vocabulary = 256,
                                                    .n_layers = 1,
                                                    .d_model = 16,
                                                    .context_length = 16,
                                                    .n_heads = heads,
                                                    .d_head = 16 / heads,
                                                    .d_hidden = 16});
    NamedConfig named{.name = name, .config = tiny::config_of(model)};
    config::Config& c = named.config;
    c.data.train = {(folder_ / "train.txt").string()};
    c.data.validation = {(folder_ / "validation.txt").string()};
    tiny::set(c, "train.steps=6 train.checkpoint_every=2 train.keep_checkpoints=10 train.evaluate_every=2");
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

  // Returns a request whose runs have one step.
  CompareRequest quick_request() const {
    CompareRequest r = request();
    for (NamedConfig& named : r.configs) {
      named.config.train.steps = 1;
    }
    return r;
  }

  CompareRequest quick_sweep(const std::vector<std::string>& learning_rates) const {
    CompareRequest r = quick_request();
    r.configs = {config("base", 4)};
    r.configs[0].config.train.steps = 1;
    r.variations = {{"train.learning_rate", learning_rates}};
    r.out = folder_ / "sweep";
    r.kind = Kind::sweep;
    return r;
  }

  static std::string refusal(const CompareRequest& r) {
    return user_error_of([&] { r.kind == Kind::sweep ? sweep(r) : compare(r); });
  }
};

}  // namespace headroom::compare::compare_fixture
