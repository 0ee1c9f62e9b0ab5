// `headroom demo`: compares small models of matched size and writes the concluding sentences.
#include "compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "tools/compare/figures/conclusions.h"
#include "tools/compare/formatting.h"
#include "training/cost/cost.h"
#include "training/cost/match.h"
#include "training/train/loop/step_time.h"

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
      " These models are too small to show what fewer heads cost a dense model ({} with {}, {} with {}{}); at 47 M "
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
  request.configs = load_configs({"small/lookup_dense_h8", "small/lookup_dense_h2", "small/lookup_switchhead_h4"},
                                 shared_overrides(overrides));
  request.seeds = std::max(kSeeds, demo.seeds);
  request.out = demo.out / kLookupFolder;
  request.title = "What a head is worth";
  request.about =
      "One layer reads random tokens; the answer at each is one bit of each of four earlier tokens, so it needs four "
      "positions at the same time. Guessing gives 0.063.";
  request.kind = Kind::comparison;
  return request;
}

// Returns the seconds that training these configs with all seeds takes on this machine.
double training_seconds(const CompareRequest& request) {
  constexpr double kMeasuring = 2.0;
  double seconds = 0.0;
  for (const NamedConfig& named : request.configs) {
    seconds += train::measure_step_time(named.config, request.cache, kMeasuring, "demo") *
               static_cast<double>(named.config.train.steps * request.seeds);
  }
  return seconds;
}

// Sets the steps of the language models; an unfinished demo keeps the steps that it started with.
void set_length(CompareRequest& request, const CompareRequest& lookups) {
  constexpr double kWhole = 570.0, kFurther = 1.2;  // seconds; factor for validations, checkpoints and samples
  constexpr std::int64_t kLeast = 300;
  const std::filesystem::path begun = request.out / request.configs.front().name / "config.toml";
  std::int64_t steps = request.configs.front().config.train.steps;
  if (std::filesystem::exists(begun)) {
    steps = train::read_run_config(begun.parent_path()).train.steps;
  } else {
    const auto start = std::chrono::steady_clock::now();
    const double seconds = training_seconds(request), others = training_seconds(lookups);
    // Measuring prepares the data.
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double share = ((kWhole - spent) / kFurther - others) / seconds;
    steps = std::clamp(static_cast<std::int64_t>(share * static_cast<double>(steps)), std::min(kLeast, steps), steps);
    const double needed =
        seconds * static_cast<double>(steps) / static_cast<double>(request.configs.front().config.train.steps);
    log_info("{} of training for each of {} language models; about {} in all on this machine", counted(steps, "step"),
             request.configs.size(), format_duration(spent + kFurther * (needed + others)));
  }
  for (NamedConfig& named : request.configs) {
    train::set_steps(named.config.train, steps);
  }
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
    set_length(request, lookups);
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
