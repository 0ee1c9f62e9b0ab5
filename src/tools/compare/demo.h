// The main job in one call: SwitchHead with 2 attention matrices a layer against dense Transformer-XLs of the same size
// with 8 and with 2, on the corpus that is always there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "compare.h"

namespace headroom::compare {

struct DemoRequest {
  std::filesystem::path out = "runs/demo";
  std::filesystem::path cache;         // prepared data
  std::vector<std::string> overrides;  // "key=value" for all three models: "train.steps=100"
  std::int64_t seeds = 1;              // trainings of each model
  std::string command;
};

// recipes/demo/dense_h8, dense_h2 and switchhead_h2, the latter two with the sizes that cost::match finds: as many
// parameters as the first.
std::vector<NamedConfig> demo_configs(const std::vector<std::string>& overrides = {});

// compare() of the three, which continues where an interrupted one stopped. Throws what compare() throws.
CompareResult demo(const DemoRequest& request);

// The demo's points: the third run (SwitchHead) against the first two (dense with many heads, with as few).
Conclusion conclude_demo(const std::vector<ComparedRun>& runs);

}  // namespace headroom::compare
