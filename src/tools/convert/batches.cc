#include "batches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/store/checkpoint.h"
#include "training/tasks/task.h"
#include "training/train/loop/start.h"

namespace headroom::convert {
namespace {

constexpr std::int64_t kStepTokens = 2048;   // of a batch of the fit
constexpr std::int64_t kMostTokens = 32768;  // used unless the request says otherwise

// Reads batches of `tokens` tokens and half as many held-out ones; nullopt if the text has fewer.
std::optional<Batches> read_batches(const ConvertRequest& request, config::Config config, std::int64_t tokens) {
  const std::int64_t length = config.model.context_length;
  Batches batches{.fit = {},
                  .held_out = {},
                  .sequences = std::max<std::int64_t>(1, std::min(kStepTokens, tokens / 4) / length),
                  .data = {}};
  config.train.batch_size = batches.sequences;
  const tasks::TaskData data = train::open_data_with(tasks::task_for(config, "convert"), config,
                                                     store::find_checkpoint(request.source), request.cache);
  batches.data = data.training->identity();
  const std::int64_t rows = batches.sequences * length;
  const std::int64_t wanted = std::max<std::int64_t>(1, (tokens + rows - 1) / rows), held_out = (wanted + 1) / 2;
  for (std::int64_t i = 0; i < wanted + held_out; ++i) {
    if (data.training->position().epoch > 0) {
      return std::nullopt;
    }
    (i < wanted ? batches.fit : batches.held_out).push_back(data.training->next());
  }
  return batches;
}

}  // namespace

Batches read_batches(const ConvertRequest& request, config::Config config) {
  if (!request.data.empty()) {
    config.data.train = request.data;
    config.data.validation.clear();
  }
  config.train.batch_tokens = 0;
  config.train.accumulate = 1;
  config.train.seed = static_cast<std::int64_t>(request.seed);
  const std::int64_t least = request.tokens > 0 ? request.tokens : 4 * config.model.context_length;
  for (std::int64_t tokens = request.tokens > 0 ? request.tokens : kMostTokens; tokens >= least; tokens /= 2) {
    if (std::optional<Batches> batches = read_batches(request, config, tokens)) {
      return std::move(*batches);
    }
  }
  user_error("convert: --data: must have at least {} tokens and half as many held-out ones; give more text{}", least,
             request.tokens > 0 ? ", or fewer --tokens" : "");
}

}  // namespace headroom::convert
