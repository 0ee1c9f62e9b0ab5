// `headroom demo`: compares small models of matched size and writes the concluding sentences.
#include "compare.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "tools/compare/figures/conclusions.h"
#include "tools/compare/report/formatting.h"
#include "training/cost/cost.h"
#include "training/cost/match.h"

namespace headroom::compare {
namespace {

// The built-in corpus holds Python sources and C++ headers.
const std::vector<std::string> kPrompts = {"def forward(self, input: Tensor) -> Tensor:\n    ",
                                           "#pragma once\n\nnamespace at {\n"};

std::string matrices(const ComparedRun& run) {
  return fmt::format("{} attention {} per layer", run.config.model.attention.n_heads,
                     run.config.model.attention.n_heads == 1 ? "matrix" : "matrices");
}

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

// Returns a sentence on the perplexity that a dense model loses with fewer heads, or on the absence of a clear
// difference, which is possible with models this small. Empty if a perplexity is not finite.
std::string effect_of_heads(const ComparedRun& many, const ComparedRun& few) {
  constexpr double kShows = 0.02;  // minimum relative difference in perplexity for a single seed, which has no interval
  const double lost = few.headline() / many.headline() - 1.0;
  if (!std::isfinite(lost)) {
    return "";
  }
  const std::optional<Interval> difference = headline_difference(few, many);
  if (difference ? difference->low > 0.0 : lost >= kShows) {
    return fmt::format(" Among the dense models, the one with fewer heads is {:.1f}% higher{}.", 100.0 * lost,
                       difference ? fmt::format(" (paired difference {})", interval_text(*difference)) : "");
  }
  return fmt::format(
      " The demo is too small to show what fewer heads cost a dense model ({} with {}, {} with {}{}); at 47 M "
      "parameters the paper reports 12.73 with 2 and 12.31 with 10.",
      plain_number(few.headline()), few.config.model.attention.n_heads, plain_number(many.headline()),
      many.config.model.attention.n_heads,
      difference ? fmt::format("; paired difference {}", interval_text(*difference)) : "");
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
  return {fmt::format("With {}, SwitchHead has a validation perplexity of {}.", matrices(switchhead),
                      plain_number(switchhead.headline())),
          fmt::format("That is {}, which has {}, and {}, which has {}.", headline_comparison(switchhead, many),
                      many.config.model.attention.n_heads, headline_comparison(switchhead, few),
                      few.config.model.attention.n_heads) +
              effect_of_heads(many, few) + seeds_caveat(runs),
          cost_comparison(switchhead, many)};
}

CompareResult demo(CompareRequest request, const std::vector<std::string>& overrides) {
  request.configs = demo_configs(overrides);
  request.prompts = kPrompts;
  request.title = "Fewer attention matrices: SwitchHead and dense Transformer-XL";
  request.about = describe_sizes(request.configs);
  request.kind = Kind::demo;
  log_info("{}", request.about);
  return compare(request);
}

}  // namespace headroom::compare
