#include "machine.h"

#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/config/model_options.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "training/cost/memory.h"

namespace headroom::train {

void check_machine(const config::Config& config) {
  const at::Device device = models::resolve(config.train.device);
  if (!device.is_cpu()) {
    return;
  }
  config::Config resolved = config;
  resolved.train.precision = models::resolve(config.train.precision, device);
  const cost::StepMemory needed = cost::step_memory(resolved);
  const std::int64_t there = memory_limit_bytes();
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  if (there > 0 && needed.total > there) {
    user_error(
        "train: a step needs at least {} of memory (parameters {}, gradients {}, optimizer {}, activations {}), but "
        "there are {}: try a smaller model or train.batch_size, or a larger train.accumulate",
        text(needed.total), text(needed.parameters), text(needed.gradients), text(needed.moments),
        text(needed.activations), text(there));
  }
}

config::Config with_vocabulary_of(config::Config config, const tokenizers::Tokenizer* tokenizer) {
  if (config.vocabulary_follows_tokenizer && tokenizer != nullptr) {
    config.model.vocabulary_size = tokenizer->vocabulary_size() + config::n_special_tokens(config.model.kind);
    config::check(config, "train");
    check_machine(config);
  }
  return config;
}

}  // namespace headroom::train
