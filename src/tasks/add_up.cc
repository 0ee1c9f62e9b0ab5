#include "add_up.h"

#include <ATen/core/grad_mode.h>

#include <chrono>

#include "headroom/core/log.h"
#include "headroom/core/system.h"

namespace headroom::tasks {

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
  Evaluation result;
  while (result.complete) {
    const std::optional<Measured> batch = next(context);
    if (!batch) {
      break;
    }
    add(result.sums, batch->sums);
    result.complete = !interrupted();
    if (progress) {
      progress->update(batch->done,
                       pass.shows_loss ? fmt::format("loss {:.4f}", mean(result.sums, kCrossEntropy)) : "");
    }
  }
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
