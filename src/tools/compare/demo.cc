// `headroom demo`: compares small models of matched size and writes the concluding sentences.
#include "compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "tools/compare/figures/result.h"
#include "tools/compare/run/plan.h"
#include "tools/compare/statistics.h"
#include "training/cost/cost.h"
#include "training/cost/match.h"

namespace headroom::compare {
namespace {

// The built-in corpus holds Python sources and C++ headers.
const std::vector<std::string> kPrompts = {"def forward(self, input: Tensor) -> Tensor:\n    ",
                                           "#pragma once\n\nnamespace at {\n"};

// Returns a sentence with the matched sizes of the models, for the page and the terminal.
std::string describe_sizes(const std::vector<NamedConfig>& configs) {
  std::vector<std::string> sizes;
  for (const NamedConfig& named : configs) {
    const config::ModelOptions& model = named.config.model;
    sizes.push_back(fmt::format("{} (d_head {}, d_hidden {}: {} parameters)", named.name, model.attention.d_head,
                                model.mlp.d_hidden, plain_number(static_cast<double>(cost::count_parameters(model)))));
  }
  return fmt::format("Sizes matched to {} by the SwitchHead papers' procedure: {}.", sizes.front(),
                     enumerated({sizes.begin() + 1, sizes.end()}));
}

}  // namespace

std::vector<NamedConfig> demo_configs(const std::vector<std::string>& overrides) {
  std::vector<NamedConfig> configs = load_configs({"demo/dense_h8", "demo/dense_h2", "demo/switchhead_h2"}, overrides);
  for (std::size_t i = 1; i < configs.size(); ++i) {
    configs[i].config = cost::match(configs[i].config, configs.front().config, cost::MatchBy::parameters).config;
    config::check(configs[i].config, configs[i].name);
  }
  return configs;
}

Conclusion conclude_demo(const std::vector<ComparedRun>& runs) {
  if (runs.size() != 3) {
    fail("demo: expected three runs, got {}", runs.size());
  }
  const ComparedRun &many = runs[0], &few = runs[1], &switchhead = runs[2];
  const auto heads = [](const ComparedRun& run) { return run.config.model.attention.n_heads; };
  const auto than = [&](const ComparedRun& run, const ComparedRun& dense) {
    return headline_comparison(run, dense, fmt::format("dense with {}", heads(dense)));
  };
  return {
      fmt::format("SwitchHead with {} attention {} per layer: validation perplexity {}, {} and {}.", heads(switchhead),
                  heads(switchhead) == 1 ? "matrix" : "matrices", with_deviation(switchhead.over_seeds("perplexity")),
                  than(switchhead, many), than(switchhead, few)),
      fmt::format("Dense with {} is {}; the paper reports 12.73 with 2 and 12.31 with 10 at 47 M parameters. {}",
                  heads(few), than(few, many), basis_of(runs)),
      cost_comparison(switchhead, many)};
}

namespace {

// Returns the overrides that concern the computation; the look-ups use them too.
std::vector<std::string> shared_overrides(const std::vector<std::string>& overrides) {
  std::vector<std::string> shared;
  for (const std::string& text : overrides) {
    const std::string key = text.substr(0, text.find('='));
    if (key == "train.threads" || key == "train.precision" || key == "train.device" || key == "train.implementation" ||
        key == "train.steps") {
      shared.push_back(text);
    }
  }
  return shared;
}

CompareRequest lookup_request(const CompareRequest& demo, const std::vector<std::string>& overrides) {
  constexpr std::int64_t kSeeds = 3;
  CompareRequest request = demo;
  // Rows of 48 tokens, as in the recipes, cost next to nothing to attend to. Half of the recipe's d_head gives
  // SwitchHead two thirds of the dense models' MACs.
  std::vector<std::string> all = shared_overrides(overrides);
  all.insert(all.end(), {"model.context_length=128", "train.batch_size=16"});
  request.configs = load_configs(
      {"small/lookup_dense_h8", "small/lookup_dense_h4", "small/lookup_dense_h2", "small/lookup_switchhead_h4"}, all);
  request.configs.back().config.model.attention.d_head /= 2;
  request.seeds = std::max(kSeeds, demo.seeds);
  request.out = demo.out / kLookupFolder;
  request.title = "What a head is worth";
  request.about =
      "One layer reads random tokens; the answer at each is one bit of each of four earlier tokens, so it needs four "
      "positions at the same time. Guessing gives 0.063.";
  request.kind = Kind::comparison;
  return request;
}

bool sets_steps(const std::vector<std::string>& overrides) {
  return std::ranges::any_of(overrides, [](const std::string& text) { return text.starts_with("train.steps="); });
}

}  // namespace

CompareResult demo(CompareRequest request, const std::vector<std::string>& overrides) {
  request.configs = demo_configs(overrides);
  const CompareRequest lookups = lookup_request(request, overrides);
  request.prompts = kPrompts;
  request.title = "Fewer attention matrices: SwitchHead and dense Transformer-XL";
  request.about = describe_sizes(request.configs);
  request.kind = Kind::demo;
  log_info("{}", request.about);
  if (!sets_steps(overrides) && request.group->size() == 1) {
    set_steps_within(/*seconds=*/570.0, request, &lookups, /*least=*/300);
  }
  CompareResult result = compare(request);
  if (!result.interrupted && result.failure.empty()) {
    CompareResult further = compare(lookups);
    result.interrupted = further.interrupted;
    result.failure = further.failure;
    result.further.push_back(std::move(further));
    if (!result.interrupted) {
      write_page(result, request.out / kPageFile);
    }
  }
  return result;
}

}  // namespace headroom::compare
