#include "folder.h"

#include "headroom/core/error.h"

namespace headroom::train {

void refuse_others(const std::filesystem::path& folder, FolderKind wanted, std::string_view what) {
  constexpr struct {
    const char* file;
    FolderKind kind;
    const char* held;
  } kFiles[] = {{kComparisonFile, FolderKind::comparison, "a comparison"},
                {kAdviceFile, FolderKind::advice, "advice"},
                {"metrics.jsonl", FolderKind::run, "a run"},
                {"checkpoints", FolderKind::run, "a run"}};
  for (const auto& [file, kind, held] : kFiles) {
    if (std::error_code error; std::filesystem::exists(folder / file, error)) {
      if (kind != wanted) {
        user_error("{}: already holds {}; choose another folder for {}", folder.string(), held, what);
      }
      return;
    }
  }
}

}  // namespace headroom::train
