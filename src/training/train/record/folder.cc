#include "folder.h"

#include "headroom/core/error.h"

namespace headroom::train {

namespace fs = std::filesystem;

namespace {

FolderKind kind_of_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kComparisonFile, error)) {
    return FolderKind::comparison;
  }
  if (fs::exists(folder / kAdviceFile, error)) {
    return FolderKind::advice;
  }
  const bool run = fs::exists(folder / "metrics.jsonl", error) || fs::is_directory(folder / "checkpoints", error);
  return run ? FolderKind::run : FolderKind::neither;
}

const char* held_by(FolderKind kind) {
  switch (kind) {
    case FolderKind::run:
      return "a run";
    case FolderKind::comparison:
      return "a comparison";
    case FolderKind::advice:
      return "advice";
    case FolderKind::neither:
      break;
  }
  return "nothing";
}

}  // namespace

void refuse_others(const fs::path& folder, FolderKind wanted, std::string_view what) {
  const FolderKind kind = kind_of_folder(folder);
  if (kind != FolderKind::neither && kind != wanted) {
    user_error("{}: already holds {}; choose another folder for {}", folder.string(), held_by(kind), what);
  }
}

}  // namespace headroom::train
