#include "demo.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "tools/compare/figures/words.h"
#include "tools/compare/report/markup.h"
#include "training/cost/cost.h"
#include "training/cost/match.h"

namespace headroom::compare {
namespace {

// Beginnings of the kinds of text that the built-in corpus holds: Python sources and C++ headers.
const std::vector<std::string> kPrompts = {"def forward(self, input: Tensor) -> Tensor:\n    ",
                                           "#pragma once\n\nnamespace at {\n"};

std::string matrices(const ComparedRun& run) {
  return fmt::format("{} attention {} a layer", run.config.model.attention.n_heads,
                     run.config.model.attention.n_heads == 1 ? "matrix" : "matrices");
}

// What was matched to what, for the page and the terminal.
std::string describe_sizes(const std::vector<NamedConfig>& configs) {
  std::vector<std::string> sizes;
  for (const NamedConfig& named : configs) {
    const config::ModelOptions& model = named.config.model;
    sizes.push_back(fmt::format("{} (d_head {}, d_hidden {}: {} parameters)", named.name, model.attention.d_head,
                                model.mlp.d_hidden, plain_number(static_cast<double>(cost::count_parameters(model)))));
  }
  return fmt::format("Matched by the SwitchHead papers' procedure to {}: {}.", sizes.front(),
                     enumerated({sizes.begin() + 1, sizes.end()}));
}

// Whether the dense pair shows what the number of heads is worth, which models as small as these may not.
std::string worth_of_heads(const ComparedRun& many, const ComparedRun& few) {
  constexpr double kShows = 0.02;  // of the perplexity, where one seed must do; caution() says that it has no interval
  const double lost = few.headline() / many.headline() - 1.0;
  if (!std::isfinite(lost)) {
    return "";
  }
  const std::optional<Interval> difference = headline_difference(few, many);
  if (difference ? difference->low > 0.0 : lost >= kShows) {
    return fmt::format(" Of the dense models the one with fewer heads is {:.1f}% higher{}.", 100.0 * lost,
                       difference ? fmt::format(" (paired difference {})", interval_text(*difference)) : "");
  }
  return fmt::format(
      " What fewer heads alone cost a dense model does not show at this size and after so few steps ({} with {}, "
      "{} with {}{}); at 47 M parameters the paper has 12.73 with 2 and 12.31 with 10.",
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
    fail("demo: compares three runs, got {}", runs.size());
  }
  const ComparedRun &many = runs[0], &few = runs[1], &switchhead = runs[2];
  return {fmt::format("With {}, SwitchHead has a validation perplexity of {}.", matrices(switchhead),
                      plain_number(switchhead.headline())),
          fmt::format("That is {}, which has {}, and {}, which has {}.", headline_against(switchhead, many),
                      many.config.model.attention.n_heads, headline_against(switchhead, few),
                      few.config.model.attention.n_heads) +
              worth_of_heads(many, few) + caution(runs),
          costs_against(switchhead, many)};
}

CompareResult demo(const DemoRequest& request) {
  CompareRequest comparison;
  comparison.configs = demo_configs(request.overrides);
  comparison.seeds = request.seeds;
  comparison.out = request.out;
  comparison.cache = request.cache;
  comparison.prompts = kPrompts;
  comparison.title = "Fewer attention matrices: SwitchHead and dense Transformer-XL";
  comparison.about = describe_sizes(comparison.configs);
  comparison.command = request.command;
  comparison.kind = Kind::demo;
  log_info("{}", comparison.about);
  return compare(comparison);
}

}  // namespace headroom::compare
