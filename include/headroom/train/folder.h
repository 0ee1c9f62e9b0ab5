// What a folder holds that --out may name: a run, a comparison of runs, or neither.
#pragma once

#include <filesystem>

namespace headroom::train {

enum class FolderKind { neither, run, comparison };

// What a comparison (or sweep) writes into its folder.
inline constexpr const char* kComparisonFile = "comparison.json";

FolderKind kind_of_folder(const std::filesystem::path& folder);

// Throw MisuseError, naming the folder, where it holds the other of the two.
void refuse_comparison(const std::filesystem::path& folder);
void refuse_run(const std::filesystem::path& folder);

}  // namespace headroom::train
