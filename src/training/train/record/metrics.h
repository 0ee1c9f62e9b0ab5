// A file of JSON objects, one a line, each of a step: metrics.jsonl, samples.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>

#include "headroom/core/json.h"

namespace headroom::train {

// Appends whole lines, each with one write, so that a killed run leaves whole lines (and at most one torn one, which
// the next opening drops). Throws Error naming the file and the reason when it cannot be written.
class MetricsLog {
 public:
  // Keeps what an earlier run wrote up to and including `last_step` and discards the rest (rewritten at once): a
  // resumed run writes those steps again, and no step stands twice.
  MetricsLog(std::filesystem::path path, std::int64_t last_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  void append(const Json& line);
  void sync();  // to the disk, before a checkpoint that says these lines are there

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace headroom::train
