#include "cost_variation.h"

#include <fmt/format.h>

#include <optional>
#include <ranges>

#include "foundation/core/text/format.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/page.h"
#include "headroom/core/error.h"
#include "training/cost/cost.h"

namespace headroom::cli {

namespace {

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
struct Places {
  std::vector<double> x;
  std::vector<std::string> names;  // labels, if the values are not numbers
};

Places places_of(const std::vector<std::string>& values) {
  Places places;
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

}  // namespace

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

std::string drawn(const std::vector<cost::NamedConfig>& configs, const config::Variation& variation,
                  const std::vector<cost::NamedConfig>& all) {
  std::vector<std::string> values;
  bool same = true;
  for (const std::string& value : variation.values) {
    values.push_back(value_for(value, 0, configs.size()));
    same = same && values.back() == value;
  }
  const Places places = places_of(values);
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

}  // namespace headroom::cli
