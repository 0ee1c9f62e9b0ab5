#include "headroom/nn/buffer_updates.h"

#include <ATen/core/grad_mode.h>

namespace headroom::nn {

void report(BufferUpdates& updates, const std::string& name, const BufferUpdate& update) {
  const auto [place, is_first] = updates.emplace(name, update);
  if (!is_first) {
    place->second.sum = place->second.sum + update.sum;
    place->second.count = place->second.count + update.count;
  }
}

void apply(const BufferUpdates& updates) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, update] : updates) {
    const at::Tensor mean = update.sum / (update.count + update.epsilon);
    update.buffer.copy_(at::where(update.count.gt(0.0), mean, update.buffer));
  }
}

}  // namespace headroom::nn
