// What a trained model writes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/compare/compare.h"

namespace headroom::compare {

// The continuation of each prompt by the model of a run folder, drawn as the request says.
std::vector<std::string> speak(const std::filesystem::path& folder, const std::vector<std::string>& prompts,
                               const CompareRequest& request);

}  // namespace headroom::compare
