#include "resume.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <type_traits>
#include <variant>

#include "headroom/core/error.h"
#include "headroom/core/log.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFixed[] = {"train.batch_size", "train.seed", "train.optimizer", "data.batching"};

std::string value_of(const config::Field& field) {
  return std::visit(
      [](const auto& slot) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(slot)>, config::Choice>) {
          return slot.get();
        } else {
          return fmt::format("{}", *slot);
        }
      },
      field.slot);
}

using Values = std::vector<std::pair<std::string, std::string>>;

void flatten(const std::string& prefix, const std::vector<config::Field>& fields,
             const std::vector<config::Fields::Table>& tables, Values& values) {
  for (const config::Field& field : fields) {
    values.emplace_back(prefix + field.key, value_of(field));
  }
  for (const config::Fields::Table& table : tables) {
    flatten(prefix + table.key + ".", table.fields, table.tables, values);
  }
}

Values values_of(config::Config& config) {
  config::Fields fields;
  describe(fields, config);
  Values values;
  flatten("", fields.fields(), fields.tables(), values);
  return values;
}

// Files under construction when a process was killed: nobody else writes here while the folder is locked.
void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().find(".tmp-") != std::string::npos && entry.is_regular_file(error)) {
      found.push_back(entry.path());
    }
  }
  for (const fs::path& path : found) {
    fs::remove(path, error);
  }
}

}  // namespace

std::vector<Difference> differences(config::Config was, config::Config is) {
  const Values before = values_of(was), after = values_of(is);
  std::vector<Difference> found;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].second != after[i].second) {
      found.push_back({before[i].first, before[i].second, after[i].second});
    }
  }
  return found;
}

std::optional<Past> open_run(const TrainRequest& request) {
  std::error_code error;
  const bool holds_checkpoints = eval::has_checkpoints(request.out);
  if (!request.resume && (holds_checkpoints || fs::exists(request.out / "config.toml", error))) {
    misuse("{}: already holds a run: resume it (--resume) or choose another folder", request.out.string());
  }
  remove_leftovers(request.out);
  remove_leftovers(request.out / "checkpoints");
  if (!holds_checkpoints) {
    return std::nullopt;
  }
  const fs::path file = eval::find_checkpoint(request.out);
  return Past{file, eval::read_checkpoint(file)};
}

void check_resumable(const Past& past, const config::Config& config) {
  for (const Difference& difference : differences(past.checkpoint.config, config)) {
    const bool fixed = difference.key.starts_with("model.") ||
                       std::find(std::begin(kFixed), std::end(kFixed), difference.key) != std::end(kFixed);
    if (fixed) {
      misuse("{}: cannot be resumed with {} = {}: the run has {}", past.file.string(), difference.key, difference.is,
             difference.was);
    }
    log_info("resuming with {} = {} (was {})", difference.key, difference.is, difference.was);
  }
  if (past.checkpoint.step > config.train.steps) {
    misuse("{}: cannot be resumed with train.steps = {}: the run has already done {} steps", past.file.string(),
           config.train.steps, past.checkpoint.step);
  }
}

}  // namespace headroom::train
