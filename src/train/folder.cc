#include "headroom/train/folder.h"

#include "headroom/core/error.h"

namespace headroom::train {

namespace fs = std::filesystem;

FolderKind kind_of_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kComparisonFile, error)) {
    return FolderKind::comparison;
  }
  const bool run = fs::exists(folder / "metrics.jsonl", error) || fs::is_directory(folder / "checkpoints", error);
  return run ? FolderKind::run : FolderKind::neither;
}

void refuse_comparison(const fs::path& folder) {
  if (kind_of_folder(folder) == FolderKind::comparison) {
    misuse("{}: holds a comparison ({}): choose another folder for the run", folder.string(), kComparisonFile);
  }
}

void refuse_run(const fs::path& folder) {
  if (kind_of_folder(folder) == FolderKind::run) {
    misuse("{}: holds a run: choose another folder for a comparison", folder.string());
  }
}

}  // namespace headroom::train
