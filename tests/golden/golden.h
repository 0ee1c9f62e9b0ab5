// Numerical reference cases, run against the layers and models: outputs, losses, states and all gradients. A case is
// `<case>.json` (options and tolerances) and `<case>.safetensors` (inputs, parameters and expected results);
// README.md has the format.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "headroom/core/implementation.h"
#include "headroom/core/json.h"

namespace headroom::golden {

struct GoldenOptions {
  Implementation implementation = Implementation::automatic;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

struct CaseOutcome {
  std::string name, family;
  std::string implementation;  // "fused", "reference", or "mixed" if operators differed
  bool passed = false;
  bool unsupported = false;  // the device has no fused version of an operator; neither passed nor failed
  std::string worst_tensor;  // the tensor with the largest ratio of error to limit
  double error = 0.0, limit = 0.0;
  std::string reason;  // why the case could not be run; empty if it ran
};

// Runs the cases under `paths`, sorted by path. Folders are searched recursively; a file is a case's .json or
// .safetensors. Calls `on_case` after each case. Throws UserError if a path does not exist or has no case.
std::vector<CaseOutcome> run_cases(const std::vector<std::filesystem::path>& paths, const GoldenOptions& options,
                                   const std::function<void(const CaseOutcome&)>& on_case = {});

// {"passed", "failed", "none_here": unsupported, "cases": [...]}.
Json outcomes_json(const std::vector<CaseOutcome>& outcomes);

std::string outcome_line(const CaseOutcome& outcome);

}  // namespace headroom::golden
