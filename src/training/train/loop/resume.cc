#include "resume.h"

#include <algorithm>
#include <string_view>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "training/train/record/folder.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

// Keys outside `model` that a resumed run must not change.
constexpr std::string_view kFixed[] = {
    "train.batch_size",          "train.batch_tokens", "train.seed",    "train.optimizer",      "data.batching",
    "train.start_from",          "train.start_sha256", "train.teacher", "train.teacher_sha256", "train.teacher_weight",
    "train.teacher_temperature", "train.teacher_top_k"};

}  // namespace

std::optional<ResumePoint> open_run(const TrainRequest& request, const parallel::GlooGroup& group) {
  std::error_code error;
  refuse_others(request.out, FolderKind::run, "the run");
  const bool holds_checkpoints = store::has_checkpoints(request.out);
  if (!request.resume && !group.restarted() && (holds_checkpoints || fs::exists(request.out / "config.toml", error))) {
    user_error("{}: already holds a run; resume it (--resume) or choose another folder", request.out.string());
  }
  if (group.leads()) {
    remove_leftovers(request.out);
    remove_leftovers(request.out / "checkpoints");
  }
  if (!holds_checkpoints) {
    if (fs::exists(request.out / "config.toml", error)) {
      log_info("{}: holds no checkpoint, so the run starts from scratch", request.out.string());
    }
    return std::nullopt;
  }
  const fs::path file = store::find_checkpoint(request.out);
  return ResumePoint{file, store::read_checkpoint(file)};
}

void check_resumable(const ResumePoint& resumed, const config::Config& config) {
  const auto was = config::flatten(resumed.checkpoint.config), is = config::flatten(config);
  for (std::size_t i = 0; i < is.size(); ++i) {
    const auto& [key, value] = is[i];
    if (value == was[i].second) {
      continue;
    }
    if (key.starts_with("model.") || std::find(std::begin(kFixed), std::end(kFixed), key) != std::end(kFixed)) {
      user_error("{}: cannot be resumed with {} = {}: the run has {}", resumed.file.string(), key,
                 value.empty() ? "\"\"" : value, was[i].second.empty() ? "\"\"" : was[i].second);
    }
    if (!key.ends_with("_every") ||
        value != fmt::format("{}", config::kAutomatic)) {  // else describe_intervals() logs it
      log_info("resuming with {} = {} (was {})", key, value, was[i].second);
    }
  }
  if (resumed.checkpoint.step > config.train.steps) {
    user_error("{}: cannot be resumed with train.steps = {}: the run has already done {}", resumed.file.string(),
               config.train.steps, counted(resumed.checkpoint.step, "step"));
  }
}

}  // namespace headroom::train
