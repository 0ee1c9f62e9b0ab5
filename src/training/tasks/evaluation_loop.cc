#include "evaluation_loop.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"

namespace headroom::tasks {
namespace {

// The sums of what one rank has evaluated.
struct RankResult {
  bool distributed = false;  // true: this rank has every Nth batch; false: every rank has all batches
  bool complete = true;
  PlacedSums parts;
};

// Floating-point values are sent as bit patterns, because JSON has no NaN or infinity.
Json to_json(const RankResult& result) {
  Json parts = Json::array();
  for (const auto& [place, sums] : result.parts) {
    Json& one = parts.emplace_back(Json::array({place, Json::object()}));
    for (const auto& [name, sum] : sums) {
      one[1][name] = {std::bit_cast<std::uint64_t>(sum.sum), sum.count};
    }
  }
  return {{"complete", result.complete}, {"parts", parts}};
}

// Gathers the parts of all ranks. Clears mine.complete if any rank was interrupted.
void gather_parts(RankResult& mine, ProcessGroup& group) {
  PlacedSums parts;
  for (const Json& theirs : gather(group, to_json(mine), "evaluate")) {
    mine.complete = mine.complete && theirs.at("complete").get<bool>();
    for (const Json& part : theirs.at("parts")) {
      Sums& sums = parts.emplace_back(part[0].get<std::int64_t>(), Sums()).second;
      for (const auto& [name, sum] : part[1].items()) {
        sums[name].add(std::bit_cast<double>(sum[0].get<std::uint64_t>()), sum[1].get<std::int64_t>());
      }
    }
  }
  if (mine.distributed) {
    mine.parts = std::move(parts);
  }
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

Evaluation run_evaluation(const EvaluateOptions& options, const EvaluationLoop& loop) {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  std::optional<Progress> progress;
  if (options.show_progress) {
    progress.emplace("evaluate", loop.units, loop.unit);
  }
  nn::Context context = options.context;
  context.training = false;
  nn::ExpertUsage usage;
  const bool distributed = loop.independent && options.group->size() > 1;
  if (distributed && context.usage != nullptr) {
    context.usage = &usage;
  }
  RankResult own{.distributed = distributed, .complete = true, .parts = {}};
  Evaluation result;
  Sums shown;
  for (std::int64_t i = 0, begin = 0, end = 0; begin < loop.units && own.complete; ++i, begin = end) {
    end =
        loop.end_of ? loop.end_of(begin) : std::min(begin + std::max<std::int64_t>(options.batch_size, 1), loop.units);
    if (!distributed || i % options.group->size() == options.group->rank()) {
      for (auto& [place, sums] : loop.evaluate_parts ? loop.evaluate_parts(begin, end, context)
                                                     : PlacedSums{{begin, loop.evaluate(begin, end, context)}}) {
        add(shown, sums);
        own.parts.emplace_back(place, std::move(sums));
      }
    }
    own.complete = !interrupted();
    if (progress) {
      progress->update(end, loop.shows_loss ? fmt::format("loss {:.4f}", mean(shown, kCrossEntropy)) : "");
    }
  }
  if (options.group->size() > 1) {
    gather_parts(own, *options.group);
    if (distributed && options.context.usage != nullptr) {
      reduce(usage, *options.context.usage, *options.group);
    }
  }
  result.sums = in_order(std::move(own.parts));
  result.complete = own.complete;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
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
