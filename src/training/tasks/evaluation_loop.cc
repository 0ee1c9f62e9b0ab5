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

namespace headroom::tasks {
namespace {

// The sums of the batches that one rank has evaluated.
struct RankResult {
  bool distributed = false;  // true: this rank has every Nth batch; false: every rank has all batches
  bool complete = true;
  std::vector<Sums> batches;
};

// Floating-point values are sent as bit patterns, because JSON has no NaN or infinity.
Json to_json(const RankResult& result) {
  Json batches = Json::array();
  for (const Sums& sums : result.batches) {
    Json& one = batches.emplace_back(Json::object());
    for (const auto& [name, sum] : sums) {
      one[name] = {std::bit_cast<std::uint64_t>(sum.sum), sum.count};
    }
  }
  return {{"complete", result.complete}, {"batches", batches}};
}

// Adds the sums of all ranks' batches in order. Clears mine.complete if any rank was interrupted.
Sums reduce(RankResult& mine, ProcessGroup& group) {
  const std::vector<Json> all = gather(group, to_json(mine), "evaluate");
  for (const Json& theirs : all) {
    mine.complete = mine.complete && theirs.at("complete").get<bool>();
  }
  Sums sums;
  const std::size_t n = mine.distributed ? all.size() : 1;
  for (std::size_t i = 0;; ++i) {
    const Json& batches = all[mine.distributed ? i % n : static_cast<std::size_t>(group.rank())].at("batches");
    if (i / n >= batches.size()) {
      return sums;
    }
    for (const auto& [name, sum] : batches[i / n].items()) {
      sums[name].add(std::bit_cast<double>(sum[0].get<std::uint64_t>()), sum[1].get<std::int64_t>());
    }
  }
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
  std::vector<Json> all;
  for (const std::string& text : group.gather(to_json_line(mine))) {
    all.push_back(parse_json(text, what));
  }
  return all;
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
  RankResult own{.distributed = distributed, .complete = true, .batches = {}};
  Evaluation result;
  for (std::int64_t i = 0, begin = 0, end = 0; begin < loop.units && own.complete; ++i, begin = end) {
    end =
        loop.end_of ? loop.end_of(begin) : std::min(begin + std::max<std::int64_t>(options.batch_size, 1), loop.units);
    if (!distributed || i % options.group->size() == options.group->rank()) {
      own.batches.push_back(loop.evaluate(begin, end, context));
      add(result.sums, own.batches.back());
    }
    own.complete = !interrupted();
    if (progress) {
      progress->update(end, loop.shows_loss ? fmt::format("loss {:.4f}", mean(result.sums, kCrossEntropy)) : "");
    }
  }
  if (options.group->size() > 1) {
    result.sums = reduce(own, *options.group);
    if (distributed && options.context.usage != nullptr) {
      reduce(usage, *options.context.usage, *options.group);
    }
  }
  result.complete = own.complete;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Sums cross_entropy(const models::Model& model, const models::Batch& batch, std::int64_t predictions,
                   models::Memory& memory, const nn::Context& context) {
  at::Tensor losses;  // per prediction, if the model returns them
  nn::Context with_losses = context;
  with_losses.token_losses = &losses;
  const models::Loss loss = model.loss(batch.to(model.device()), memory, with_losses);
  if (!losses.defined()) {
    const double sum = loss.cross_entropy.item<double>() * static_cast<double>(predictions);
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

}  // namespace headroom::tasks
