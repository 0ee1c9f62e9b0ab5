// Runs numerical reference cases against the layers: outputs, losses, states and every gradient.
//
// A case is `<case>.json` (meaning, tolerance) and `<case>.safetensors` (inputs, parameters, expected results).
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "headroom/core/implementation.h"
#include "headroom/core/json.h"

namespace headroom::golden {

struct Options {
  Implementation implementation = Implementation::automatic;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

struct Outcome {
  std::string name, family;
  std::string implementation;  // what ran: "fused", "reference", or "mixed" when operators differed
  bool passed = false;
  bool none_here = false;    // fused was asked for, and the device has no such version: neither passed nor failed
  std::string worst_tensor;  // the one nearest to its limit, or furthest beyond
  double error = 0.0, limit = 0.0;
  std::string reason;  // why a case could not be run at all; else empty
};

// Every case found under `paths` (folders are searched, a file may be the .json or the .safetensors), in the order of
// their names. `on_case` is called after each. Throws UserError when a path does not exist or holds no case.
std::vector<Outcome> run_cases(const std::vector<std::filesystem::path>& paths, const Options& options,
                               const std::function<void(const Outcome&)>& on_case = {});

// "passed", "failed", "none_here", "cases": [...].
Json outcomes_json(const std::vector<Outcome>& outcomes);

// One line for a person.
std::string outcome_line(const Outcome& outcome);

}  // namespace headroom::golden
