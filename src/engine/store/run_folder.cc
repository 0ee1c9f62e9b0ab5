#include "headroom/store/checkpoint.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "checkpoint_reader.h"
#include "foundation/core/files/folders.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_", kSuffix = ".safetensors";

// Returns the step of "step_<n>.safetensors"; nullopt for other names.
std::optional<std::int64_t> step_of(const fs::path& file) {
  const std::string name = file.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size()) {
    return std::nullopt;
  }
  return whole_number(std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
}

// Returns the checkpoint files of a folder, newest (largest step) first.
std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (const auto step = step_of(entry.path())) {
      found.emplace_back(*step, entry.path());
    }
  }
  std::ranges::sort(found, std::greater<>());
  std::vector<fs::path> files;
  for (auto& [step, path] : found) {
    files.push_back(std::move(path));
  }
  return files;
}

// Returns the folder "checkpoints" of a run folder, or any other folder unchanged.
fs::path folder_of_checkpoints(const fs::path& run_or_folder) {
  std::error_code error;
  const fs::path inside = run_or_folder / "checkpoints";
  return fs::is_directory(inside, error) ? inside : run_or_folder;
}

void remove_old(const fs::path& folder, const fs::path& newest, std::int64_t keep) {
  std::int64_t kept = 1;  // counts the newest
  for (const fs::path& file : list_checkpoints(folder)) {
    if (file != newest && ++kept > keep) {
      std::error_code ignored;  // an extra checkpoint is harmless
      fs::remove(file, ignored);
    }
  }
}

// Returns the first run folder, by name, directly in a folder; empty if there is none.
fs::path first_run_in(const fs::path& folder) {
  fs::path first;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (has_checkpoints(entry.path()) && (first.empty() || entry.path() < first)) {
      first = entry.path();
    }
  }
  return first;
}

// Returns the checkpoints of a run folder in the order in which to try them: first the checkpoint that `latest` names,
// then the newest. A file is returned unchanged. Throws UserError if there are no checkpoints.
std::vector<fs::path> candidates_of(const fs::path& run_or_checkpoint) {
  std::error_code error;
  if (!fs::is_directory(run_or_checkpoint, error)) {
    if (error == std::errc::permission_denied) {
      user_error("{}: cannot be read, {}", run_or_checkpoint.string(), error.message());
    }
    if (!fs::exists(run_or_checkpoint, error)) {
      const std::string download = download_hint(run_or_checkpoint.string());
      user_error(
          "{}: no such run folder or checkpoint{}", run_or_checkpoint.string(),
          download.empty() ? "; `headroom train` makes one, `headroom import` converts a downloaded model" : download);
    }
    if (run_or_checkpoint.extension() == ".toml") {
      user_error("{}: is a config; expected a run folder or a checkpoint (create one with `headroom train`)",
                 run_or_checkpoint.string());
    }
    return {run_or_checkpoint};
  }
  if (fs::exists(run_or_checkpoint / "config.json", error)) {
    return {run_or_checkpoint};  // in Hugging Face's layout
  }
  const fs::path folder = folder_of_checkpoints(run_or_checkpoint);
  std::vector<fs::path> candidates = list_checkpoints(folder);
  if (candidates.empty()) {
    if (const fs::path run = first_run_in(run_or_checkpoint); !run.empty()) {
      user_error("{}: is a folder of runs; expected one run, such as {}", run_or_checkpoint.string(), run.string());
    }
    user_error("{}: holds no checkpoint", run_or_checkpoint.string());
  }
  const auto named = std::ranges::find(candidates, latest_file(folder));
  if (named != candidates.end()) {
    std::rotate(candidates.begin(), named, named + 1);
  } else {
    log_warning("{}: names no checkpoint of this folder; using the newest readable one", (folder / "latest").string());
  }
  return candidates;
}

}  // namespace

fs::path write_checkpoint(const Checkpoint& checkpoint, const fs::path& folder, std::int64_t keep,
                          ProcessGroup& peers) {
  const std::string name = fmt::format("{}{}{}", kPrefix, checkpoint.step, kSuffix);
  if (peers.leads()) {
    make_folder(folder);
  }
  save_checkpoint(checkpoint, folder / name, peers);
  if (peers.leads()) {
    write_text_file(folder / "latest", name + "\n");
    remove_old(folder, folder / name, keep);
  }
  return folder / name;
}

std::vector<fs::path> earlier_checkpoints(const fs::path& file) {
  const std::vector<fs::path> files = list_checkpoints(file.parent_path());
  const auto own = std::ranges::find(files, file);
  return {own == files.end() ? own : own + 1, files.end()};
}

void open_first(const fs::path& run_or_checkpoint, const OpenCandidate& open) {
  constexpr int kAttempts = 20;
  for (int attempt = 1;; ++attempt) {
    const std::vector<fs::path> candidates = candidates_of(run_or_checkpoint);
    bool removed = false;  // a candidate vanished, because the run has written a newer one
    for (const fs::path& candidate : candidates) {
      try {
        open(candidate, candidates.size() == 1);
        return;
      } catch (const UserError& reason) {
        std::error_code ignored;
        removed = attempt < kAttempts && candidate != run_or_checkpoint && !fs::exists(candidate, ignored);
        if (removed) {
          break;
        }
        if (candidates.size() == 1) {
          throw;
        }
        log_warning("{}; trying an earlier checkpoint", reason.what());
      }
    }
    if (!removed) {
      user_error("{}: none of its {} checkpoints is readable", candidates.front().parent_path().string(),
                 candidates.size());
    }
  }
}

fs::path find_checkpoint(const fs::path& run_or_checkpoint) {
  fs::path found;
  open_first(run_or_checkpoint, [&](const fs::path& file, bool is_only) {
    if (!is_only) {
      read_checkpoint(file, Check::shapes);
    }
    found = file;
  });
  return found;
}

std::vector<fs::path> checkpoints_of(const fs::path& run) {
  std::vector<fs::path> files = list_checkpoints(folder_of_checkpoints(run));
  if (files.empty()) {
    user_error("{}: not a run folder, or it has no checkpoints", run.string());
  }
  std::ranges::reverse(files);
  return files;
}

Checkpoint average_checkpoints(const fs::path& run, std::int64_t count) {
  std::vector<fs::path> files = checkpoints_of(run);
  std::ranges::reverse(files);  // newest first
  if (count < 1 || std::ssize(files) < count) {
    user_error("{}: holds {}, too few for the mean of {}; see train.checkpoint_every and train.keep_checkpoints",
               run.string(), counted(std::ssize(files), "checkpoint"), count);
  }
  Checkpoint mean = read_checkpoint(files.front());
  std::map<std::string, at::Tensor> sums;
  for (std::int64_t i = 0; i < count; ++i) {
    const Checkpoint one = i == 0 ? mean : read_checkpoint(files[static_cast<std::size_t>(i)]);
    for (const auto& [name, tensor] : mean.tensors) {
      if (!name.starts_with("model.")) {
        continue;
      }
      const auto found = one.tensors.find(name);
      if (found == one.tensors.end() || found->second.sizes() != tensor.sizes()) {
        user_error("{}: its model differs from that of {}", files[static_cast<std::size_t>(i)].string(),
                   files.front().string());
      }
      at::Tensor& sum = sums[name];
      sum = sum.defined() ? sum.add_(found->second) : found->second.to(at::kDouble);
    }
  }
  mean.tensors.clear();
  for (auto& [name, sum] : sums) {
    mean.tensors[name] = sum.div_(static_cast<double>(count)).to(at::kFloat);
  }
  return mean;
}

bool has_checkpoints(const fs::path& run) {
  return !list_checkpoints(run / "checkpoints").empty();
}

}  // namespace headroom::store
