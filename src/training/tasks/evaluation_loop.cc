#include "evaluation_loop.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>

#include "data/tokens/example_order.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::tasks {
namespace {

// Gathers the parts of all ranks, and adds the other ranks' parts to `parts` if `distributed`. Returns whether no rank
// was interrupted. Floating-point values are sent as bit patterns, because JSON has no NaN or infinity.
bool gather_parts(PlacedSums& parts, bool complete, bool distributed, ProcessGroup& group) {
  Json mine = Json::array();
  for (const auto& [place, sums] : parts) {
    Json& one = mine.emplace_back(Json::array({place, Json::object()}));
    for (const auto& [name, sum] : sums) {
      one[1][name] = {std::bit_cast<std::uint64_t>(sum.sum), sum.count};
    }
  }
  PlacedSums all;
  for (const Json& theirs : gather(group, {{"complete", complete}, {"parts", mine}}, "evaluate")) {
    complete = complete && theirs.at("complete").get<bool>();
    for (const Json& part : theirs.at("parts")) {
      Sums& sums = all.emplace_back(part[0].get<std::int64_t>(), Sums()).second;
      for (const auto& [name, sum] : part[1].items()) {
        sums[name].add(std::bit_cast<double>(sum[0].get<std::uint64_t>()), sum[1].get<std::int64_t>());
      }
    }
  }
  if (distributed) {
    parts = std::move(all);
  }
  return complete;
}

Sums in_order(PlacedSums parts) {
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.first < b.first; });
  Sums all;
  for (const auto& [place, sums] : parts) {
    add(all, sums);
  }
  return all;
}

// Adds all ranks' counts to `all`.
void reduce(const nn::ExpertUsage& mine, nn::ExpertUsage& all, ProcessGroup& group) {
  Json counts = Json::object();
  for (const auto& [name, tensor] : mine) {
    const at::Tensor values = tensor.cpu().contiguous();
    counts[name] = std::vector<std::int64_t>(values.const_data_ptr<std::int64_t>(),
                                             values.const_data_ptr<std::int64_t>() + values.numel());
  }
  for (const Json& theirs : gather(group, counts, "evaluate")) {
    for (const auto& [name, values] : theirs.items()) {
      const at::Tensor more = at::tensor(values.get<std::vector<std::int64_t>>(), at::kLong);
      at::Tensor& sum = all[name];
      sum = sum.defined() ? sum + more.to(sum.device()) : more;
    }
  }
}

}  // namespace

std::vector<Json> gather(ProcessGroup& group, const Json& mine, std::string_view what) {
  return transformed(group.gather(to_json_line(mine)), [&](const std::string& text) { return parse_json(text, what); });
}

bool for_each_batch(const EvaluateOptions& options, const BatchLoop& loop,
                    const std::function<std::string(std::int64_t begin, std::int64_t end)>& work) {
  std::optional<Progress> progress;
  if (options.show_progress) {
    progress.emplace(loop.title, loop.units, loop.unit);
  }
  std::string note;
  std::int64_t turn = 0;
  for (std::int64_t begin = 0, end = 0; begin < loop.units; begin = end) {
    end = loop.end_of(begin);
    if (!loop.distributed || turn++ % options.group->size() == options.group->rank()) {
      note = work(begin, end);
    }
    if (progress) {
      progress->update(end, note);
    }
    if (interrupted()) {
      return false;
    }
  }
  return true;
}

Evaluation run_evaluation(const EvaluateOptions& options, const EvaluationLoop& loop) {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  nn::Context context = options.context;
  context.training = false;
  nn::ExpertUsage usage;
  const bool distributed = loop.independent && options.group->size() > 1;
  if (distributed && context.usage != nullptr) {
    context.usage = &usage;
  }
  const auto end_of = [&](std::int64_t begin) {
    return loop.end_of ? loop.end_of(begin)
                       : std::min(begin + std::max<std::int64_t>(options.batch_size, 1), loop.units);
  };
  PlacedSums parts;
  Sums shown;
  Evaluation result;
  result.complete = for_each_batch(
      options,
      {.title = "evaluate", .unit = loop.unit, .units = loop.units, .end_of = end_of, .distributed = distributed},
      [&](std::int64_t begin, std::int64_t end) {
        for (auto& [place, sums] : loop.evaluate(begin, end, context)) {
          add(shown, sums);
          parts.emplace_back(place, std::move(sums));
        }
        return loop.shows_loss ? fmt::format("loss {:.4f}", mean(shown, kCrossEntropy)) : "";
      });
  if (options.group->size() > 1) {
    result.complete = gather_parts(parts, result.complete, distributed, *options.group);
    if (distributed && options.context.usage != nullptr) {
      reduce(usage, *options.context.usage, *options.group);
    }
  }
  result.sums = in_order(std::move(parts));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

namespace {

class UnitEvaluation : public EvaluationData {
 public:
  explicit UnitEvaluation(EvaluationUnits units) : units_(std::move(units)) {}

  Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const override {
    std::vector<std::int64_t> chosen = within(options.most_tokens);
    if (units_.length) {
      std::ranges::stable_sort(chosen, {}, units_.length);
    }
    const auto measure = [&](std::int64_t begin, std::int64_t end, const nn::Context& context) {
      return units_.evaluate(model, units_of(chosen, begin, end), begin, context);
    };
    Evaluation result = run_evaluation(
        options,
        {.unit = units_.unit, .units = std::ssize(chosen), .evaluate = measure, .shows_loss = units_.shows_loss});
    if (result.predictions() == 0) {
      user_error("{}: none of its {} {}s can be read", identity(), chosen.size(), units_.unit);
    }
    return result;
  }
  double rows(const config::Config& /*config*/, std::int64_t most_tokens) const override {
    return static_cast<double>(within(most_tokens).size());
  }
  std::string identity() const override { return units_.identity(); }

 private:
  std::vector<std::int64_t> within(std::int64_t most_tokens) const {
    return data::spread_units(units_.size, most_tokens, units_.cost);
  }

  EvaluationUnits units_;
};

}  // namespace

std::unique_ptr<EvaluationData> evaluation_of(EvaluationUnits units) {
  return std::make_unique<UnitEvaluation>(std::move(units));
}

at::Tensor token_losses(const models::Model& model, const models::Batch& batch, models::Memory& memory,
                        const nn::Context& context, at::Tensor* mean) {
  at::Tensor losses;
  nn::Context with_losses = context;
  with_losses.token_losses = &losses;
  const models::Loss loss = model.loss(batch.to(model.device()), memory, with_losses);
  if (mean != nullptr) {
    *mean = loss.cross_entropy;
  }
  return losses;
}

Sums cross_entropy(const models::Model& model, const models::Batch& batch, std::int64_t predictions,
                   models::Memory& memory, const nn::Context& context) {
  at::Tensor mean;
  const at::Tensor losses = token_losses(model, batch, memory, context, &mean);
  if (!losses.defined()) {
    const double sum = mean.item<double>() * static_cast<double>(predictions);
    return {{std::string(kCrossEntropy), {.sum = sum, .count = predictions}}};
  }
  return sums_of_losses(losses);
}

Sums sums_of_losses(const at::Tensor& losses) {
  const at::Tensor wide = losses.to(at::kDouble);
  const at::Tensor both = at::stack({wide.sum(), wide.square().sum()}).cpu();
  return {{std::string(kCrossEntropy), {.sum = both[0].item<double>(), .count = losses.numel()}},
          {std::string(kSquaredCrossEntropy), {.sum = both[1].item<double>(), .count = losses.numel()}}};
}

nn::Context split_invariant(nn::Context context) {
  context.split_invariant = true;
  return context;
}

PlacedSums sums_of_parts(const at::Tensor& losses, const std::vector<std::int64_t>& places,
                         const std::vector<std::int64_t>& counted) {
  const at::Tensor here = losses.cpu();
  PlacedSums parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (counted[i] > 0) {
      parts.emplace_back(places[i], sums_of_losses(here.narrow(0, begin, counted[i])));
    }
    begin += counted[i];
  }
  return parts;
}

}  // namespace headroom::tasks
