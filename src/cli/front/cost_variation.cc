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
  const auto chart = [&](const char* title) {
    return draw::LineChart{
        .title = title,
        .x_label = same ? variation.key
                        : fmt::format("{} of {}", last_part(variation.key, '.'), last_part(configs.front().first, '/')),
        .lines = {},
        .y = draw::YScale::from_zero,
        .name_room = 24,
        .x_names = places.names};
  };
  draw::LineChart parameters = chart("Parameters"), attention = chart("Attention MACs, per layer and sequence"),
                  step = chart("MACs of a training step");
  for (std::size_t i = 0; i < configs.size(); ++i) {
    draw::Line line{.name = last_part(configs[i].first, '/'), .points = {}, .band = {}, .style = static_cast<int>(i)};
    draw::Line parameters_line = line, attention_line = line, step_line = line;
    for (std::size_t j = 0; j < places.x.size(); ++j) {
      const config::Config& config = all[i * places.x.size() + j].second;
      const auto at = [&](std::int64_t count) { return draw::Point{places.x[j], static_cast<double>(count)}; };
      parameters_line.points.push_back(at(cost::count_parameters(config.model)));
      attention_line.points.push_back(at(cost::paper_cost(config.model).attention_macs));
      step_line.points.push_back(at(cost::executed_cost(config.model, config.whole_sequences()).step_macs));
    }
    parameters.lines.push_back(std::move(parameters_line));
    attention.lines.push_back(std::move(attention_line));
    step.lines.push_back(std::move(step_line));
  }
  Json figures = Json::array();
  for (const draw::LineChart* one : {&parameters, &attention, &step}) {
    figures.push_back({{"figure", one->title}, {"remark", ""}, {"blocks", Json::array({block_of(*one)})}});
  }
  return draw::block_page({{"title", "Costs by " + variation.key},
                           {"header", Json::array()},
                           {"blocks", {{{"grid", std::move(figures)}}}}});
}

}  // namespace headroom::cli
