#include "resume.h"

#include <algorithm>
#include <string_view>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "training/train/record/folder.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFixed[] = {"train.batch_size", "train.batch_tokens", "train.seed",        "train.optimizer",
                                       "data.batching",    "train.start_from",   "train.start_sha256"};

}  // namespace

std::optional<Past> open_run(const TrainRequest& request, const parallel::GlooGroup& world) {
  std::error_code error;
  refuse_others(request.out, FolderKind::run, "the run");
  const bool holds_checkpoints = store::has_checkpoints(request.out);
  if (!request.resume && !world.restarted() && (holds_checkpoints || fs::exists(request.out / "config.toml", error))) {
    user_error("{}: already holds a run: resume it (--resume) or choose another folder", request.out.string());
  }
  if (world.leads()) {
    remove_leftovers(request.out);
    remove_leftovers(request.out / "checkpoints");
  }
  if (!holds_checkpoints) {
    if (fs::exists(request.out / "config.toml", error)) {
      log_info("{}: holds no checkpoint to continue from: the run starts again", request.out.string());
    }
    return std::nullopt;
  }
  const fs::path file = store::find_checkpoint(request.out);
  return Past{file, store::read_checkpoint(file)};
}

void check_resumable(const Past& past, const config::Config& config) {
  const auto was = config::flatten(past.checkpoint.config), is = config::flatten(config);
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto& [key, value] = is[i];
    if (value == was[i].second) {
      continue;
    }
    if (key.starts_with("model.") || std::find(std::begin(kFixed), std::end(kFixed), key) != std::end(kFixed)) {
      user_error("{}: cannot be resumed with {} = {}: the run has {}", past.file.string(), key,
                 value.empty() ? "\"\"" : value, was[i].second.empty() ? "\"\"" : was[i].second);
    }
    log_info("resuming with {} = {} (was {})", key, value, was[i].second);
  }
  if (past.checkpoint.step > config.train.steps) {
    user_error("{}: cannot be resumed with train.steps = {}: the run has already done {} steps", past.file.string(),
               config.train.steps, past.checkpoint.step);
  }
}

}  // namespace headroom::train
