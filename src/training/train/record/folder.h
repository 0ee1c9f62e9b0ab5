// Identifies the contents of an --out folder: a run, a comparison of runs, or advice.
#pragma once

#include <filesystem>
#include <string_view>

namespace headroom::train {

enum class FolderKind { run, comparison, advice };

// Files that identify a comparison (or sweep) and advice.
inline constexpr const char* kComparisonFile = "comparison.json";
inline constexpr const char* kAdviceFile = "advice.json";

// Throws UserError if the folder has contents of another kind than `wanted`. The message mentions `what`, such as "the
// run".
void refuse_others(const std::filesystem::path& folder, FolderKind wanted, std::string_view what);

}  // namespace headroom::train
