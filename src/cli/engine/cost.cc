// The command cost.
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <ranges>
#include <sstream>

#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/page.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"
#include "headroom/models/compute.h"
#include "training/cost/cost.h"
#include "training/cost/match.h"
#include "training/cost/report.h"
#include "training/tasks/task.h"
#include "training/train/loop/step_time.h"
#include "training/train/loop/train.h"

namespace headroom::cli {

namespace {

// A model, and the rate at which this machine trains it in multiply-accumulates per second.
struct Fit {
  config::Config config;
  double rate = 0.0;
};

// Finds the size from the config's rate, then again from the rate at that size: larger models train at a higher rate.
Fit fit_to_time(config::Config& config, const std::string& name, double seconds) {
  constexpr double kMeasuring = 3.0;  // seconds for each rate
  constexpr int kRounds = 2;
  config.train.precision = models::resolve(config.train.precision, models::resolve(config.train.device));
  train::check_machine(config);
  tasks::TaskData data = tasks::task_for(config, "cost").open(config, cache_folder());
  config = train::with_vocabulary_of(std::move(config), data.tokenizer.get());
  models::set_threads(config.train.threads);
  Fit fit{.config = config};
  for (int round = 0; round < kRounds; ++round) {
    train::check_machine(fit.config);
    const double step = train::measure_step_time(fit.config, data, kMeasuring, "cost");
    fit.rate = static_cast<double>(cost::executed_cost(fit.config.model, config.whole_sequences()).step_macs) / step;
    const std::optional<config::Config> size = cost::largest_within(config, fit.rate * seconds);
    if (!size) {
      user_error("cost: --time: no size of {} between {} and {} times its widths takes {}; give another config or time",
                 name, cost::kSmallestFactor, cost::kLargestFactor, format_duration(seconds));
    }
    fit.config = *size;
  }
  return fit;
}

// Returns the keys in which `config` differs from `base`, as for --set.
std::vector<std::string> changes(const config::Config& config, const config::Config& base) {
  std::vector<std::string> changed;
  const auto is = config::flatten(config), was = config::flatten(base);
  for (std::size_t i = 0; i < is.size(); ++i) {
    if (is[i] != was[i]) {
      changed.push_back(is[i].first + "=" + is[i].second);
    }
  }
  return changed;
}

int run_in_time(const Cost& command, const Output& output) {
  const double seconds = parse_duration(command.time, "cost: --time");
  catch_interrupts();
  Json list = Json::array();
  std::string text;
  for (const std::string& name : command.configs) {
    config::Config base = config::load_run_config(name, command.set);
    if (base.model.kind != config::ModelKind::language_model || !base.train.start_from.empty()) {
      user_error("cost: --time: {}: needs a language model trained from scratch, got {}", name,
                 base.train.start_from.empty() ? config::name_of(base.model.kind) : "train.start_from");
    }
    Fit fit = fit_to_time(base, name, seconds);
    const std::int64_t parameters = cost::count_parameters(fit.config.model);
    const std::int64_t tokens = cost::kTokensPerParameter * parameters;
    const double tokens_per_second = fit.rate / cost::training_macs_per_token(fit.config);
    fit.config.train.seconds = 0.0;
    train::set_steps(fit.config.train, tokens / (fit.config.train.batch_size * fit.config.model.context_length));
    const std::vector<std::string> set = changes(fit.config, base);
    list.push_back(cost::cost_json(name, fit.config));
    list.back().update({{"seconds", static_cast<double>(tokens) / tokens_per_second},
                        {"tokens", tokens},
                        {"tokens_per_second", tokens_per_second},
                        {"set", set}});
    text += fmt::format(
        "{}: in {} this machine trains {} parameters on {} tokens ({} a parameter, {} tokens/s): --set {}\n", name,
        format_duration(static_cast<double>(tokens) / tokens_per_second), format_count(static_cast<double>(parameters)),
        format_count(static_cast<double>(tokens)), cost::kTokensPerParameter, format_count(tokens_per_second),
        fmt::join(set, " --set "));
  }
  output.text(text);
  output.document(list);
  return 0;
}

// Loads the config; model keys that it does not set come from the config of train.start_from. Reads no tensors.
config::Config load_with_start(const std::string& name, const std::vector<std::string>& set) {
  config::Config config = config::load_run_config(name, set);
  const std::filesystem::path start = config.train.start_from;
  if (start.empty()) {
    const bool is_unknown = config::has_tokenizer(config) || (config.tokenizer.kind == config::TokenizerKind::words &&
                                                              config.tokenizer.vocabulary_size == 0);
    if (config.vocabulary_follows_tokenizer && is_unknown && !config.model.has_classes()) {
      log_warning(
          "cost: {}: model.vocabulary_size is not set and follows the tokenizer, which is not read: counted with {}",
          name, config.model.vocabulary_size);
    }
    return config;
  }
  std::error_code ignored;
  const std::string toml = std::filesystem::is_directory(start, ignored) ? read_text_file(start / "config.toml")
                                                                         : SafetensorsFile(start).metadata_at("config");
  const config::GivenKeys given = config.given;
  config::take_values(config, config::parse_config(toml, start.string()),
                      [&given](std::string_view key) { return key.starts_with("model.") && !given.contains(key); });
  config::check(config, name);
  return config;
}

// Returns the folder of the file to which standard output is redirected; empty if it is not a file.
std::filesystem::path folder_of_output() {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/fd/1", error);
  return std::filesystem::is_regular_file(file, error) ? file.parent_path() : std::filesystem::path();
}

// Returns the lines as TOML comments.
std::string as_comments(const std::string& lines) {
  std::istringstream stream(lines);
  std::string text;
  for (std::string line; std::getline(stream, line);) {
    text += line.empty() ? "#\n" : "# " + line + "\n";
  }
  return text;
}

int run_match(const Cost& options, const Output& output) {
  if (options.configs.size() != 1) {
    user_error("cost: --match {}: resizes one CONFIG, got {}", options.match, options.configs.size());
  }
  const std::string& name = options.configs.front();
  const auto by = options.by == "macs" ? cost::MatchBy::macs : cost::MatchBy::parameters;
  const cost::MatchResult result =
      cost::match(config::load_config(name, options.set), config::load_config(options.match), by);
  const std::string summary = as_comments(cost::match_summary(result));
  output.text(options.full ? summary + "\n" + config::to_toml(result.config)
                           : config::changes_to_toml(result.config, config::load_config(name),
                                                     config::base_name(name, folder_of_output())) +
                                 "\n" + summary);
  output.document(cost::match_json(result));
  return 0;
}

std::string last_part(const std::string& text, char separator) {
  return text.substr(text.rfind(separator) + 1);
}

// Returns the value for config `i` of `n`.
std::string value_for(const std::string& value, std::size_t i, std::size_t n) {
  std::vector<std::string> each;
  for (const auto part : std::views::split(value, ':')) {
    each.emplace_back(part.begin(), part.end());
  }
  if (each.size() == 1) {
    return value;
  }
  if (each.size() != n) {
    user_error("cost: --vary: {} has {} values for {} configs; give one value for all, or one for each", value,
               each.size(), n);
  }
  return each[i];
}

// The position of each value on the x axis: increasing numbers at their value, other values at equal distances.
struct AxisPositions {
  std::vector<double> x;
  std::vector<std::string> names;  // labels, if the values are not numbers
};

AxisPositions places_of(const std::vector<std::string>& values) {
  AxisPositions places;
  for (const std::string& value : values) {
    const std::optional<double> number = as_number(value);
    if (!number || (!places.x.empty() && *number <= places.x.back())) {
      places = {.x = {}, .names = values};
      for (std::size_t i = 0; i < values.size(); ++i) {
        places.x.push_back(static_cast<double>(i));
      }
      return places;
    }
    places.x.push_back(*number);
  }
  return places;
}

// Returns every config with every value, named "dense_h8 n_heads=4". A value such as "4:8" is 4 for the first config
// and 8 for the second. Throws UserError if a config does not allow a value, or if there is not one for each config.
std::vector<cost::NamedConfig> varied(const std::vector<cost::NamedConfig>& configs,
                                      const config::Variation& variation) {
  std::vector<cost::NamedConfig> all;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const auto& [name, config] = configs[i];
    for (const std::string& values : variation.values) {
      const std::string value = value_for(values, i, configs.size());
      config::Config changed = config;
      config::change(changed, {variation.key + "=" + value}, "--vary");
      const std::string described = fmt::format("{} {}={}", name, last_part(variation.key, '.'), value);
      config::check(changed, described);
      all.emplace_back(described, std::move(changed));
    }
  }
  return all;
}

// Returns a page with the parameters, the multiply-accumulates of attention (paper accounting) and of a training step
// against the values of the first config, with one line for each of `configs`; `all` are their variations.
std::string drawn(const std::vector<cost::NamedConfig>& configs, const config::Variation& variation,
                  const std::vector<cost::NamedConfig>& all) {
  std::vector<std::string> values;
  bool same = true;
  for (const std::string& value : variation.values) {
    values.push_back(value_for(value, 0, configs.size()));
    same = same && values.back() == value;
  }
  const AxisPositions places = places_of(values);
  const std::string x_label =
      same ? variation.key
           : fmt::format("{} of {}", last_part(variation.key, '.'), last_part(configs.front().first, '/'));
  using Count = std::int64_t (*)(const config::Config&);
  const std::pair<const char*, Count> counts[] = {
      {"Parameters", [](const config::Config& c) { return cost::count_parameters(c.model); }},
      {"Attention MACs, per layer and sequence",
       [](const config::Config& c) { return cost::paper_cost(c.model).attention_macs; }},
      {"MACs of a training step",
       [](const config::Config& c) { return cost::executed_cost(c.model, c.whole_sequences()).step_macs; }}};
  Json figures = Json::array();
  for (const auto& [title, count] : counts) {
    Json lines = Json::array();
    for (std::size_t i = 0; i < configs.size(); ++i) {
      Json points = Json::array();
      for (std::size_t j = 0; j < places.x.size(); ++j) {
        const config::Config& config = all[i * places.x.size() + j].second;
        points.push_back(draw::numbers({places.x[j], static_cast<double>(count(config))}));
      }
      lines.push_back({{"name", last_part(configs[i].first, '/')}, {"points", std::move(points)}, {"style", i}});
    }
    Json chart = {{"chart", "lines"},          {"title", title},   {"x_label", x_label},
                  {"lines", std::move(lines)}, {"y", "from_zero"}, {"name_room", 24}};
    if (!places.names.empty()) {
      chart["x_names"] = places.names;
    }
    figures.push_back({{"figure", title}, {"remark", ""}, {"blocks", Json::array({std::move(chart)})}});
  }
  return draw::block_page({{"title", "Costs by " + variation.key},
                           {"header", Json::array()},
                           {"blocks", {{{"grid", std::move(figures)}}}}});
}

}  // namespace

int run(const Cost& options, const EngineRequest& request) {
  const Output& output = request.output;
  if (!options.time.empty()) {
    return run_in_time(options, output);
  }
  if (!options.match.empty()) {
    return run_match(options, output);
  }
  if (!options.paper.empty()) {
    output.text(cost::paper_table(options.paper));
    output.document(cost::paper_json(options.paper));
    return 0;
  }
  std::vector<cost::NamedConfig> configs = transformed(options.configs, [&](const std::string& name) {
    return cost::NamedConfig(name, load_with_start(name, options.set));
  });
  if (!options.vary.empty()) {
    const config::Variation variation = config::parse_variation(options.vary, "cost: --vary");
    std::vector<cost::NamedConfig> all = varied(configs, variation);
    if (!options.plot.empty()) {
      write_text_file(options.plot, drawn(configs, variation, all));
    }
    configs = std::move(all);
  }
  Json list = Json::array();
  for (const auto& [name, config] : configs) {
    list.push_back(cost::cost_json(name, config));
    if (!options.devices.ranks.empty()) {
      list.back()["processes"] = cost::ranks_json(config, options.devices);
    }
  }
  const bool alone = options.devices.ranks.empty();
  output.text(alone ? cost::cost_table(configs) : cost::ranks_table(configs, options.devices));
  output.document(list);
  return 0;
}

}  // namespace headroom::cli
