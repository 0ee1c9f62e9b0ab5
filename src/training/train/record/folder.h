// What a folder holds that --out may name: a run, a comparison of runs, advice, or none of them.
#pragma once

#include <filesystem>
#include <string_view>

namespace headroom::train {

enum class FolderKind { neither, run, comparison, advice };

// What a comparison (or sweep) writes into its folder, and what advise does.
inline constexpr const char* kComparisonFile = "comparison.json";
inline constexpr const char* kAdviceFile = "advice.json";

FolderKind kind_of_folder(const std::filesystem::path& folder);

// Throws UserError, naming the folder, where it holds something of another kind than `wanted`; `what`, "the run", is
// what it was to hold.
void refuse_others(const std::filesystem::path& folder, FolderKind wanted, std::string_view what);

}  // namespace headroom::train
