#include "plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kLongestName = 120;  // of a folder name, bytes

// Returns the value of a key of an entry of model.layers, "model.layers.0.attention.window"; empty if it is not set.
std::string entry_value(const std::vector<config::LayerOptions>& layers, const std::string& key) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string entry = fmt::format("model.layers.{}.", i);
    if (key == entry + "repeat") {
      return fmt::format("{}", layers[i].repeat);
    }
    for (const auto& [table, keys] : {std::pair("attention", &layers[i].attention), std::pair("mlp", &layers[i].mlp)}) {
      for (const auto& [name, value] : *keys) {
        if (key == fmt::format("{}{}.{}", entry, table, name)) {
          return value.starts_with('"') ? value.substr(1, value.size() - 2) : value;
        }
      }
    }
  }
  return {};
}

// Formats the value as the config does: 0.0003 for 3e-4.
std::string spelled(const config::Config& config, const std::string& key) {
  if (const std::string value = entry_value(config.model.layers, key); !value.empty()) {
    return value;
  }
  for (auto& [name, value] : config::flatten(config)) {
    if (name == key) {
      return value;
    }
  }
  fail("plan: no key {}", key);
}

// Returns the variations with values formatted as in `config`. Throws UserError if the config cannot take them.
std::vector<Variation> canonical(const std::vector<Variation>& variations, const config::Config& config,
                                 std::string_view option) {
  std::vector<Variation> all;
  for (const Variation& variation : variations) {
    if (variation.key == "train.seed") {
      user_error("{}: train.seed cannot be tuned or varied; use --seeds N", option);
    }
    Variation& one = all.emplace_back(Variation{variation.key, {}});
    for (const std::string& value : variation.values) {
      config::Config changed = config;
      config::set_key(changed, variation.key + "=" + value, option);
      std::string text = spelled(changed, variation.key);
      if (std::ranges::find(one.values, text) != one.values.end()) {
        user_error("{}: {}: {} is named twice", option, variation.key, text);
      }
      one.values.push_back(std::move(text));
    }
    if (std::ranges::count(all, variation.key, &Variation::key) > 1) {
      user_error("{}: {}: is given twice; list all its values at once", option, variation.key);
    }
  }
  return all;
}

std::int64_t checked_seeds(std::int64_t seeds, const char* command) {
  if (seeds < 1 || seeds > kMostSeeds) {
    user_error("{}: seeds must be between 1 and {}, got {}", command, kMostSeeds, seeds);
  }
  return seeds;
}

// Returns the run with `values`, which come from the command-line option `option`.
PlannedRun with_values(const NamedConfig& model, const std::filesystem::path& folder, const Values& values,
                       const std::string& option) {
  PlannedRun run{.values = values, .config = model.config, .folder = folder};
  if (!values.empty()) {
    const std::vector<std::string> assignments =
        transformed(values, [](const auto& entry) { return entry.first + "=" + entry.second; });
    config::change(run.config, assignments, option);
    config::check(run.config, fmt::format("{} with {}", model.name, describe(values)));
    run.folder /= folder_name(values);
  }
  return run;
}

}  // namespace

std::vector<Values> combinations(const std::vector<Variation>& variations) {
  std::vector<Values> all = {{}};
  for (const Variation& variation : variations) {
    std::vector<Values> longer;
    for (const Values& values : all) {
      for (const std::string& value : variation.values) {
        longer.push_back(values);
        longer.back().emplace_back(variation.key, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string short_key(const std::string& key, const std::vector<std::string>& keys) {
  const auto last = [](const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); };
  const auto alike = std::ranges::count_if(keys, [&](const std::string& other) { return last(other) == last(key); });
  return alike > 1 ? key : last(key);
}

std::string describe(const Values& values) {
  std::vector<std::string> keys;
  std::string text;
  for (const auto& [key, value] : values) {
    keys.push_back(key);
  }
  for (const auto& [key, value] : values) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", short_key(key, keys), value);
  }
  return text;
}

std::string plain_name(std::string text) {
  for (char& c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    c = plain || std::string_view("._=,+-").find(c) != std::string_view::npos ? c : '_';
  }
  return text;
}

std::string folder_name(Values values) {
  std::ranges::sort(values);
  std::string exact;
  for (const auto& [key, value] : values) {
    exact += fmt::format("{}{}={}", exact.empty() ? "" : ",", key, value);
  }
  std::string name = plain_name(exact).substr(0, kLongestName);
  if (name != exact) {
    name += "-" + sha256_of(exact).substr(0, 8);
  }
  return name;
}

std::vector<std::string> keys_of(const std::vector<Variation>& variations) {
  return transformed(variations, &Variation::key);
}

Plan plan_comparison(const CompareRequest& request) {
  Plan plan{.models = {}, .variations = {}, .seeds = checked_seeds(request.seeds, "compare")};
  for (const NamedConfig& named : request.configs) {
    PlannedModel& model = plan.models.emplace_back(PlannedModel{named.name, {}, named.family});
    plan.variations = canonical(request.variations, named.config, "compare: --tune");
    for (const Values& values : combinations(plan.variations)) {
      model.choices.push_back(with_values(named, request.out / named.name, values, "--tune"));
    }
  }
  return plan;
}

Plan plan_sweep(const CompareRequest& request) {
  if (request.variations.empty()) {
    user_error("sweep: --vary: nothing to vary; give a key with its values, as in train.learning_rate=3e-4,1e-3");
  }
  Plan plan{.models = {},
            .variations = canonical(request.variations, request.configs.front().config, "sweep: --vary"),
            .seeds = checked_seeds(request.seeds, "sweep"),
            .may_diverge = true,
            .command = "sweep"};
  for (const Values& values : combinations(plan.variations)) {
    plan.models.push_back({describe(values), {with_values(request.configs.front(), request.out, values, "--vary")}});
  }
  return plan;
}

void check_seeds(const Plan& plan) {
  constexpr std::int64_t kMostSeed = std::int64_t{1} << 53;  // the maximum of train.seed
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      if (choice.config.train.seed > kMostSeed - (plan.seeds - 1)) {
        user_error("{}: --seeds: the last of {} seeds from train.seed = {} is above {}", plan.command, plan.seeds,
                   choice.config.train.seed, kMostSeed);
      }
    }
  }
}

PlannedRun with_seed(const PlannedRun& first, std::int64_t index) {
  PlannedRun run = first;
  if (index > 0) {
    run.config.train.seed += index;
    run.folder /= fmt::format("seed_{}", run.config.train.seed);
  }
  return run;
}

}  // namespace headroom::compare
