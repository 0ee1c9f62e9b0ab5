#include "heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "heads_table.h"

namespace headroom::convert {
namespace {

namespace fs = std::filesystem;

constexpr double kMostError = 0.2;   // relative error above which predicted losses are corrected
constexpr double kLeastLoss = 1e-3;  // nats that are not worth a correction
constexpr int kCurvePoints = 40;     // budgets of the page's curve

using Rows = std::vector<std::vector<HeadsRow>>;

class HeadsSearch {
 public:
  explicit HeadsSearch(const HeadsRequest& request) : request_(request), table_(request) {}

  HeadsResult run() {
    HeadsResult result{.costs = table_.cost_names()};
    const RowOfLayer chosen = keeps_source() ? RowOfLayer(table_.rows().size(), 0) : corrected(result);
    result.chosen = described(chosen);
    result.config = table_.config_of(table_.request_for(chosen));
    result.conversion = converted(chosen, request_.convert.out);
    add_uniform(result);
    add_curve(result);
    return result;
  }

 private:
  std::optional<double> limit_of(const std::string& key) const {
    const auto found = std::ranges::find(request_.budget, key, &Limit::key);
    return found == request_.budget.end() ? std::nullopt : std::optional(found->value);
  }
  bool keeps_source() const {
    return !limit_of("loss") &&
           std::ranges::all_of(request_.budget, [](const Limit& limit) { return limit.value == 1.0; });
  }
  // Returns the limits of the loss and of each cost, as sums over the layers.
  std::vector<double> limits() const;
  std::optional<RowOfLayer> allocated(const Rows& rows, const std::vector<double>& limits, std::size_t minimise) const;
  // Returns the choice with the least loss or, if the loss is limited, with the least of the first cost.
  std::optional<RowOfLayer> choose(const Rows& rows) const {
    return allocated(rows, limits(), limit_of("loss") ? 1 : 0);
  }
  [[noreturn]] void refuse_budget() const;
  // Returns a choice by the losses of layers converted alone. If their sum is too far from the measured loss, chooses
  // again by the losses that in_context() returns.
  RowOfLayer corrected(HeadsResult& result) const;
  // Returns rows with corrected losses: for each layer that `choice` converts, multiplied by the loss that the layer
  // adds to the rest of `choice`, divided by the loss that it adds alone. `measured`: the loss that `choice` adds.
  Rows in_context(const RowOfLayer& choice, double measured) const;
  // Fits the layers of a choice together. Writes `out` unless it is empty.
  Conversion converted(const RowOfLayer& choice, const fs::path& out) const {
    ConvertRequest request = table_.request_for(choice);
    request.out = out;
    return convert(request, [&](const models::Model& target) { table_.start(choice, target); });
  }
  HeadsChoice described(const RowOfLayer& choice) const;
  std::vector<RowOfLayer> uniform_choices() const;
  void add_uniform(HeadsResult& result) const;
  void add_curve(HeadsResult& result) const;

  const HeadsRequest& request_;
  HeadsTable table_;
};

std::vector<double> HeadsSearch::limits() const {
  std::vector<double> limits = {limit_of("loss").value_or(std::numeric_limits<double>::infinity())};
  for (std::size_t i = 0; i < table_.cost_names().size(); ++i) {
    const std::optional<double> share = limit_of(table_.cost_names()[i]);
    limits.push_back(share ? *share * table_.totals()[i] * (1.0 + 1e-9) - table_.fixed()[i]
                           : std::numeric_limits<double>::infinity());
  }
  return limits;
}

std::optional<RowOfLayer> HeadsSearch::allocated(const Rows& rows, const std::vector<double>& limits,
                                                 std::size_t minimise) const {
  std::vector<LayerOptions> options;
  for (const std::vector<HeadsRow>& layer : rows) {
    LayerOptions& of = options.emplace_back();
    for (const HeadsRow& row : layer) {
      // A layer that shares keys in the source may always share them, because the owner's heads do not change.
      const bool takes_keys = row.heads.shares && &row != &layer.front();
      of.push_back({.values = {row.loss}, .takes_keys = takes_keys, .gives_keys = row.gives_keys});
      of.back().values.insert(of.back().values.end(), row.costs.begin(), row.costs.end());
    }
  }
  return allocate(options, limits, minimise);
}

void HeadsSearch::refuse_budget() const {
  if (std::ranges::all_of(table_.rows(), [](const std::vector<HeadsRow>& rows) { return rows.size() == 1; })) {
    user_error("convert: --heads auto: {} has no layer whose heads may change, a dense one with keys of its own",
               request_.convert.source);
  }
  std::vector<double> costs = limits();
  costs.front() = std::numeric_limits<double>::infinity();
  if (const auto choice = allocated(table_.rows(), costs, 0)) {
    user_error("convert: --budget: loss={:g} is below the least loss that the other limits allow, {:.4f}",
               *limit_of("loss"), described(*choice).predicted);
  }
  std::ranges::fill(costs, std::numeric_limits<double>::infinity());
  std::string least;
  for (std::size_t i = 0; i < table_.cost_names().size(); ++i) {
    const double share = described(*allocated(table_.rows(), costs, i + 1)).shares[i];
    least += fmt::format("{}{}={:g}", i == 0 ? "" : ", ", table_.cost_names()[i], std::ceil(1e3 * share - 1e-6) / 1e3);
  }
  user_error("convert: --budget: no choice of heads meets all limits; the least possible is {}", least);
}

RowOfLayer HeadsSearch::corrected(HeadsResult& result) const {
  const std::optional<RowOfLayer> choice = choose(table_.rows());
  if (!choice) {
    refuse_budget();
  }
  const double predicted = described(*choice).predicted;
  result.measured = table_.added(*choice);
  if (std::abs(result.measured - predicted) <= std::max(kMostError * predicted, kLeastLoss)) {
    return *choice;
  }
  const std::optional<RowOfLayer> again = choose(in_context(*choice, result.measured));
  const double most = limit_of("loss").value_or(std::numeric_limits<double>::infinity());
  if (!again || described(*again).predicted > most) {
    return *choice;  // in_context() may lower losses, so the new choice may exceed the limit
  }
  const double measured = table_.added(*again);
  result.corrected = *again != *choice && measured < result.measured;
  result.measured = std::min(measured, result.measured);
  return result.corrected ? *again : *choice;
}

Rows HeadsSearch::in_context(const RowOfLayer& choice, double measured) const {
  Rows rows = table_.rows();
  Progress progress("convert: without each layer", std::ssize(choice), "layer");
  for (std::size_t layer = 0; layer < choice.size(); ++layer) {
    if (choice[layer] > 0) {
      RowOfLayer others = choice;
      others[layer] = 0;
      const double alone = std::max(rows[layer][choice[layer]].loss, kLeastLoss);
      const double factor = std::clamp((measured - table_.added(others)) / alone, 0.1, 10.0);
      std::ranges::for_each(rows[layer], [&](HeadsRow& row) { row.loss *= factor; });
    }
    progress.update(static_cast<std::int64_t>(layer) + 1);
  }
  return rows;
}

HeadsChoice HeadsSearch::described(const RowOfLayer& choice) const {
  HeadsChoice described;
  described.shares = table_.fixed();
  for (std::size_t layer = 0; layer < choice.size(); ++layer) {
    const HeadsRow& own = table_.row(choice, layer);
    const HeadsRow& source = table_.rows()[layer].front();
    LayerChoice of{.heads = own.heads, .loss = own.loss, .shares = {}};
    for (std::size_t i = 0; i < own.costs.size(); ++i) {
      of.shares.push_back(source.costs[i] > 0.0 ? own.costs[i] / source.costs[i] : 1.0);
      described.shares[i] += own.costs[i];
    }
    described.predicted += own.loss;
    described.layers.push_back(std::move(of));
  }
  for (std::size_t i = 0; i < described.shares.size(); ++i) {
    described.shares[i] /= table_.totals()[i];
  }
  return described;
}

// Returns the choices in which all layers have the same heads, at least one.
std::vector<RowOfLayer> HeadsSearch::uniform_choices() const {
  std::vector<RowOfLayer> all;
  for (const HeadsRow& first : table_.rows().front()) {
    RowOfLayer choice;
    for (const std::vector<HeadsRow>& rows : table_.rows()) {
      if (const auto same = std::ranges::find(rows, first.heads, &HeadsRow::heads); same != rows.end()) {
        choice.push_back(static_cast<std::size_t>(same - rows.begin()));
      }
    }
    if (choice.size() == table_.rows().size() && first.heads.heads > 0) {
      all.push_back(std::move(choice));
    }
  }
  return all;
}

void HeadsSearch::add_uniform(HeadsResult& result) const {
  std::optional<RowOfLayer> best;
  for (const RowOfLayer& choice : uniform_choices()) {
    HeadsChoice own = described(choice);
    bool fits = true;
    for (std::size_t i = 0; i < own.shares.size(); ++i) {
      const double most = result.chosen.shares[i];  // if the loss is limited, the costs may be far below their limits
      fits = fits && own.shares[i] <= (limit_of("loss") ? most : limit_of(result.costs[i]).value_or(most)) + 1e-9;
    }
    if (fits && (!best || own.predicted < result.uniform->predicted)) {
      best = choice;
      result.uniform = own;
    }
    result.uniforms.push_back(std::move(own));
  }
  // Keeps only choices that lose less than all cheaper ones.
  std::ranges::sort(result.uniforms, {}, [](const HeadsChoice& of) { return std::pair(of.shares[0], of.predicted); });
  double least = std::numeric_limits<double>::infinity();
  std::erase_if(result.uniforms, [&](const HeadsChoice& of) {
    return of.predicted >= std::exchange(least, std::min(least, of.predicted));
  });
  if (!best) {
    return;
  }
  const std::string name = name_of(result.uniform->layers.front().heads);
  const fs::path file = table_.cache() / fmt::format("{}, {} and {} steps.json", name, request_.convert.fit_steps,
                                                     request_.convert.joint_steps);
  std::optional<double> loss = fs::exists(file) ? as_number(read_text_file(file)) : std::nullopt;
  if (!loss) {
    log_info("convert: all layers with {}, for comparison", name);
    loss = converted(*best, {}).loss_after;
    write_text_file(file, Json(*loss).dump());
  }
  result.uniform_loss = *loss;
}

void HeadsSearch::add_curve(HeadsResult& result) const {
  for (int i = 1; i <= kCurvePoints; ++i) {
    std::vector<double> limit(table_.cost_names().size() + 1, std::numeric_limits<double>::infinity());
    limit[1] = table_.totals().front() * i / kCurvePoints - table_.fixed().front();
    if (const auto choice = allocated(table_.rows(), limit, 0)) {
      result.curve.push_back(described(*choice));
    }
  }
}

}  // namespace

std::string name_of(const Heads& heads) {
  if (heads.experts > 0) {
    return fmt::format("{} heads x {} experts", heads.heads, heads.experts);
  }
  return fmt::format("{} heads{}", heads.heads,
                     heads.shares                    ? ", shared keys"
                     : heads.kv_heads != heads.heads ? fmt::format(", {} key heads", heads.kv_heads)
                                                     : "");
}

HeadsResult choose_heads_by_layer(const HeadsRequest& request) {
  if (!request.convert.out.empty()) {
    require_writable(request.convert.out, "convert: --out");
  }
  return HeadsSearch(request).run();
}

}  // namespace headroom::convert
