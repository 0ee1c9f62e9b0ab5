#include "add_up.h"

#include <ATen/core/grad_mode.h>

#include <bit>
#include <chrono>
#include <utility>
#include <vector>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "gather.h"
#include "headroom/core/json.h"

namespace headroom::tasks {
namespace {

// What one process measured.
struct Share {
  bool shared = false;  // every Nth batch; otherwise all of them, as the others did
  bool complete = true;
  std::vector<Sums> batches;
};

// Numbers by their bits, since JSON has none that are not finite.
Json to_json(const Share& share) {
  Json batches = Json::array();
  for (const Sums& sums : share.batches) {
    Json& one = batches.emplace_back(Json::object());
    for (const auto& [name, sum] : sums) {
      one[name] = {std::bit_cast<std::uint64_t>(sum.sum), sum.count};
    }
  }
  return {{"complete", share.complete}, {"batches", batches}};
}

// Adds all batches up in their order; notes where any process was interrupted.
Sums join(Share& mine, ProcessGroup& peers) {
  const std::vector<Json> all = gather(peers, to_json(mine), "evaluate");
  for (const Json& theirs : all) {
    mine.complete = mine.complete && theirs.at("complete").get<bool>();
  }
  Sums sums;
  const std::size_t n = mine.shared ? all.size() : 1;
  for (std::size_t i = 0;; ++i) {
    const Json& batches = all[mine.shared ? i % n : static_cast<std::size_t>(peers.rank())].at("batches");
    if (i / n >= batches.size()) {
      return sums;
    }
    for (const auto& [name, sum] : batches[i / n].items()) {
      sums[name].add(std::bit_cast<double>(sum[0].get<std::uint64_t>()), sum[1].get<std::int64_t>());
    }
  }
}

// Counts, whose sum has one order.
void join(const nn::ExpertUsage& mine, nn::ExpertUsage& all, ProcessGroup& peers) {
  Json counts = Json::object();
  for (const auto& [name, tensor] : mine) {
    const at::Tensor numbers = tensor.cpu().contiguous();
    counts[name] = std::vector<std::int64_t>(numbers.const_data_ptr<std::int64_t>(),
                                             numbers.const_data_ptr<std::int64_t>() + numbers.numel());
  }
  for (const Json& theirs : gather(peers, counts, "evaluate")) {
    for (const auto& [name, numbers] : theirs.items()) {
      const at::Tensor more = at::tensor(numbers.get<std::vector<std::int64_t>>(), at::kLong);
      at::Tensor& sum = all[name];
      sum = sum.defined() ? sum + more.to(sum.device()) : more;
    }
  }
}

}  // namespace

Evaluation add_up(const EvaluateOptions& options, const Pass& pass,
                  const std::function<std::optional<Measured>(const nn::Context& context)>& next) {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  std::optional<Progress> progress;
  if (options.show_progress) {
    progress.emplace("evaluate", pass.units, pass.unit);
  }
  nn::Context context = options.context;
  context.training = false;
  nn::ExpertUsage usage;
  const bool shared = pass.independent && options.peers->size() > 1;
  if (shared && context.usage != nullptr) {
    context.usage = &usage;
  }
  Share share{.shared = shared, .complete = true, .batches = {}};
  Evaluation result;
  for (std::int64_t i = 0; share.complete; ++i) {
    const std::optional<Measured> batch = next(context);
    if (!batch) {
      break;
    }
    if (!shared || i % options.peers->size() == options.peers->rank()) {
      share.batches.push_back(batch->sums());
      add(result.sums, share.batches.back());
    }
    share.complete = !interrupted();
    if (progress) {
      progress->update(batch->done,
                       pass.shows_loss ? fmt::format("loss {:.4f}", mean(result.sums, kCrossEntropy)) : "");
    }
  }
  if (options.peers->size() > 1) {
    result.sums = join(share, *options.peers);
    if (shared && options.context.usage != nullptr) {
      join(usage, *options.context.usage, *options.peers);
    }
  }
  result.complete = share.complete;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Sums cross_entropy(const models::Model& model, const models::Batch& batch, std::int64_t predictions,
                   models::Memory& memory, const nn::Context& context) {
  at::Tensor losses;  // of each prediction
  nn::Context telling = context;
  telling.token_losses = &losses;
  const models::Loss loss = model.loss(batch.to(model.device()), memory, telling);
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
