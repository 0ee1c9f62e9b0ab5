// Charts that relate runs to each other: differences, cost, scaling, and the keys of a sweep.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "foundation/core/text/format.h"
#include "foundation/draw/charts.h"
#include "sections.h"
#include "tools/compare/figures/result.h"
#include "tools/compare/figures/scaling.h"
#include "tools/compare/run/plan.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kLabelRoom = 24;  // characters of a line's label

// Returns "learning_rate 0.001, n_heads 2", or the values alone if that is too long for a label.
std::string short_description(const Values& values) {
  const std::string whole = describe(values);
  std::string alone;
  for (const auto& [key, value] : values) {
    alone += (alone.empty() ? "" : ", ") + value;
  }
  return whole.size() > kLabelRoom ? alone : whole;
}

Json interval_row(const std::string& name, const Interval& interval, const std::string& text, std::size_t style) {
  return {{"name", name},          {"mean", interval.mean}, {"low", interval.low},
          {"high", interval.high}, {"text", text},          {"style", style}};
}

// Returns a chart of intervals as the only figure; none without rows.
Json intervals_figure(const std::string& title, const std::string& remark, Json rows) {
  return rows.empty() ? Json::array()
                      : Json::array({figure(title, remark,
                                            {{"chart", "intervals"}, {"title", title}, {"rows", std::move(rows)}})});
}

}  // namespace

std::string label_of(const ComparedRun& run) {
  return run.name == describe(run.values) ? short_description(run.values) : run.name;
}

Json bounds_of(const tasks::FigureKind& kind) {
  return kind.is_bounded() ? Json{0.0, kind.range} : Json();
}

const char* scale_of(const tasks::FigureKind& kind) {
  return kind.is_bounded() ? "" : "; logarithmic";
}

const char* better_direction(const tasks::FigureKind& kind) {
  return kind.better == Better::higher ? "higher" : "lower";
}

Json difference_chart(const std::vector<ComparedRun>& runs) {
  Json rows = Json::array();
  for (std::size_t r = 1; r < runs.size(); ++r) {
    if (const std::optional<Interval> difference = headline_difference(runs[r], runs.front())) {
      rows.push_back(interval_row(runs[r].name, *difference, interval_text(*difference), r));
    }
  }
  const tasks::FigureKind& kind = runs.front().headline_kind();
  return intervals_figure("Difference from " + runs.front().name,
                          fmt::format("validation {}, {} is better; mean over the seeds and 95% interval; an interval "
                                      "that includes zero shows no difference",
                                      kind.words, better_direction(kind)),
                          std::move(rows));
}

namespace {

// Empty if all runs have the same cost.
template <class Cost>
Json quality_against(const char* cost_name, const std::vector<ComparedRun>& runs, const Cost& cost) {
  const tasks::FigureKind& kind = runs.front().headline_kind();
  Json points = Json::array();
  bool intervals = false, alike = true;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::vector<double> values = runs[r].over_seeds(kind.name);
    std::optional<Interval> spread = paired_difference(values, std::vector<double>(values.size(), 0.0));
    points.push_back(
        {{"name", label_of(runs[r])}, {"at", draw::numbers({cost(runs[r]), runs[r].headline()})}, {"style", r}});
    if (spread) {
      if (kind.is_bounded()) {
        spread = {.mean = spread->mean, .low = std::max(spread->low, 0.0), .high = std::min(spread->high, kind.range)};
      }
      points.back()["interval"] = draw::numbers({spread->low, spread->high});
      intervals = true;
    }
    alike = alike && cost(runs[r]) == cost(runs.front());
  }
  return alike ? Json::array()
               : Json::array(
                     {figure(fmt::format("Quality against {}", cost_name),
                             fmt::format("validation {}{}, {} logarithmic; better models are further {} and left",
                                         kind.words, intervals ? ", mean over the seeds and its 95% interval" : "",
                                         kind.is_bounded() ? "the costs" : "both axes",
                                         kind.better == Better::higher ? "up" : "down"),
                             {{"chart", "scatter"},
                              {"title", fmt::format("Validation {} against {}", kind.words, cost_name)},
                              {"x_label", cost_name},
                              {"bounds", bounds_of(kind)},
                              {"points", std::move(points)}})});
}

}  // namespace

Json quality_against_cost(const std::vector<ComparedRun>& runs) {
  Json figures = quality_against("attention MACs", runs,
                                 [](const ComparedRun& run) { return static_cast<double>(run.attention_macs); });
  append(figures, quality_against("MACs of a training step", runs, std::mem_fn(&ComparedRun::step_macs)));
  return figures;
}

namespace {

// Sorts numbers in ascending order; keeps other values in command-line order.
std::vector<std::string> ordered(std::vector<std::string> values) {
  if (std::ranges::all_of(values, [](const std::string& value) { return as_number(value).has_value(); })) {
    std::ranges::sort(values, [](const auto& a, const auto& b) { return *as_number(a) < *as_number(b); });
  }
  return values;
}

// Plots the headline figure against the values of variation `key`: one line per combination of the other keys if there
// are few, else a single line of the best figures.
Json values_chart(const CompareResult& result, std::size_t key) {
  const std::string& name = result.variations[key].key;
  const std::vector<std::string> x_names = ordered(result.variations[key].values);
  std::map<std::string, std::map<std::size_t, double>> lines;  // other keys' values → index on the x axis → figure
  const tasks::FigureKind& kind = result.runs.front().headline_kind();
  const auto add = [&](const std::string& line, std::size_t place, double figure) {
    const auto [at, is_new] = lines[line].emplace(place, figure);
    if (!is_new && is_better(kind, figure, at->second)) {
      at->second = figure;
    }
  };
  std::size_t combinations = 1;
  for (std::size_t other = 0; other < result.variations.size(); ++other) {
    combinations *= other == key ? 1 : result.variations[other].values.size();
  }
  for (const ComparedRun& run : result.runs) {
    Values others = run.values;
    const std::string value = others[key].second;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(key));
    const auto place = std::ranges::find(x_names, value) - x_names.begin();
    if (run.has_figure()) {
      add(combinations > static_cast<std::size_t>(draw::kStyles) ? "best of all" : short_description(others),
          static_cast<std::size_t>(place), run.headline());
    }
  }
  Json drawn = Json::array();
  for (const auto& [others, figures] : lines) {
    Json points = Json::array();
    for (const auto& [place, figure] : figures) {
      points.push_back(draw::numbers({static_cast<double>(place), figure}));
    }
    const auto style = -1 - static_cast<int>(drawn.size());  // colours stand for runs
    drawn.push_back({{"name", others}, {"points", std::move(points)}, {"style", style}});
  }
  return {{"chart", "lines"},        {"title", "The figure for each " + name},
          {"x_label", name},         {"bounds", bounds_of(kind)},
          {"name_room", kLabelRoom}, {"lines", std::move(drawn)},
          {"x_names", x_names}};
}

}  // namespace

Json value_section(const CompareResult& result) {
  Json figures = Json::array();
  if (result.kind != Kind::sweep) {
    return figures;
  }
  const tasks::FigureKind& kind = result.runs.front().headline_kind();
  for (std::size_t key = 0; key < result.variations.size(); ++key) {
    const Variation& variation = result.variations[key];
    if (variation.values.size() > 1) {
      figures.push_back(
          figure("Validation " + kind.words + " against " + variation.key,
                 fmt::format("{} is better{}{}", better_direction(kind), scale_of(kind),
                             result.variations.size() > 1 ? "; a line for each of the other keys' values" : ""),
                 values_chart(result, key)));
    }
  }
  append(figures, quality_against_cost(result.runs));
  return figures.empty() ? figures : Json{{{"heading", "Effect of each key"}}, {{"grid", std::move(figures)}}};
}

namespace {

Json scaling_chart(const Scaling& scaling) {
  Json points = Json::array(), lines = Json::array(), gaps = Json::array();
  for (std::size_t f = 0; f < scaling.size(); ++f) {
    const ScaledFamily& family = scaling[f];
    const int neutral = -1 - static_cast<int>(f);  // colours stand for models
    for (const ScaledModel& model : family.models) {
      const bool smallest = &model == &family.models.front();  // has room for the family's name
      points.push_back({{"name", model.name},
                        {"at", draw::numbers({model.flops, model.loss()})},
                        {"style", model.style},
                        {"label", smallest ? shorten(family.name, 24) : ""}});
    }
    if (!family.unfitted.empty()) {
      continue;
    }
    const double from = family.models.front().flops, to = family.models.back().flops;
    lines.push_back({{"from", draw::numbers({from, family.law.loss(from)})},
                     {"to", draw::numbers({to, family.law.loss(to)})},
                     {"style", neutral}});
    if (family.saving) {
      const double loss = family.saving->loss;
      gaps.push_back({{"from", draw::numbers({family.law.flops(loss), loss})},
                      {"to", draw::numbers({scaling.front().law.flops(loss), loss})},
                      {"text", saving_text(*family.saving)},
                      {"style", neutral}});
    }
  }
  return {{"chart", "scatter"},          {"title", "Validation loss against training compute"},
          {"x_label", "training FLOPs"}, {"points", std::move(points)},
          {"lines", std::move(lines)},   {"gaps", std::move(gaps)}};
}

// DCMHA, Figure 3 (bottom). Empty if no family has as many sizes as the first.
Json improvement_figure(const Scaling& scaling) {
  Json rows = Json::array();
  for (std::size_t f = 1; f < scaling.size(); ++f) {
    for (const ScaledModel& model : scaling[f].models) {
      if (const std::optional<Interval>& lower = model.improvement) {
        const std::string mean = format_decimal(lower->mean, 3);
        rows.push_back(interval_row(
            model.name, *lower,
            lower->low == lower->high
                ? mean
                : fmt::format("{} [{}, {}]", mean, format_decimal(lower->low, 3), format_decimal(lower->high, 3)),
            f));
      }
    }
  }
  return intervals_figure(
      "Improvement by size",
      "by how many nats the validation loss is lower than that of the first family's model of the same rank in compute",
      std::move(rows));
}

Table scaling_table(const Scaling& scaling) {
  const std::string needs = shorten(scaling.front().name, 24) + " needs";
  Table table{.columns = {{.name = "family", .words = true, .about = About::name},
                          {.name = "model", .words = true, .about = About::name},
                          {.above = "training", .name = "FLOPs"},
                          {.above = "validation", .name = "loss"},
                          {.above = "times the compute", .name = needs},
                          {.above = "times the time", .name = needs}},
              .rows = {}};
  for (const ScaledFamily& family : scaling) {
    for (const ScaledModel& model : family.models) {
      table.rows.push_back({{.text = shorten(family.name, 24)},
                            {.text = shorten(model.name, 24), .style = model.style},
                            {.text = short_number(model.flops)},
                            {.text = format_decimal(model.loss(), 3)},
                            {.text = model.saving ? saving_text(*model.saving) : "",
                             .small = model.saving && model.saving->extrapolated ? "extrapolated" : ""},
                            {.text = model.speedup ? saving_text(*model.speedup) : ""}});
    }
  }
  return table;
}

}  // namespace

Json scaling_section(const CompareResult& result) {
  if (result.scaling.empty()) {
    return Json::array();
  }
  Json figures = Json::array({figure(
      "Loss against compute",
      "validation loss in nats and FLOPs of the whole training, both logarithmic; one line per family; at a loss that "
      "both reach, the compute of the first family relative to the other",
      scaling_chart(result.scaling))});
  append(figures, improvement_figure(result.scaling));
  return {{{"heading", "Scaling"}},
          {{"grid", std::move(figures)}},
          block_of(scaling_table(result.scaling), " narrow"),
          {{"note",
            fmt::format(
                "Last columns: the compute and the training time with which {} reaches the model's loss, divided by "
                "the model's own. Times are measured; that of the first family is read from a power law through its "
                "models. FLOPs: two for each multiply-accumulate of a training step, times the steps. Lines: least "
                "squares of the logarithms. Brackets: 95% intervals by Student's t over the seeds.",
                shorten(result.scaling.front().name, 24))}}};
}

std::string render_scaling(const CompareResult& result) {
  return result.scaling.empty() ? "" : text_of(scaling_table(result.scaling));
}

}  // namespace headroom::compare
