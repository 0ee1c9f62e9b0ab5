// The metric files of a run: JSON lines (metrics.jsonl, samples.jsonl) and TensorBoard's event files (TFRecords of
// Event messages, encoded here).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "headroom/core/json.h"

namespace headroom::train {

// Appends each line with a single write, so that a killed run leaves complete lines and at most one truncated one,
// which the next opening removes. Throws Error naming the file and the reason if it cannot be written.
class MetricsLog {
 public:
  // Rewrites the file without lines of steps after `last_step`, because a resumed run will write them again.
  MetricsLog(std::filesystem::path path, std::int64_t last_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Both throw Error if the file has been deleted or moved, because then its folder is no longer the run's.
  void append(const Json& line);
  void sync();  // to disk, before a checkpoint that relies on these lines

 private:
  void require_in_place() const;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

struct Scalar {
  std::string_view tag;
  double value;
};

// One `events.out.tfevents.<time>.<pid>.headroom` file. A resumed run opens a new one, and TensorBoard shows both as
// one curve: the session mark at its start makes readers discard the later steps of an earlier file.
class EventWriter {
 public:
  // Throws Error naming a file that cannot be created.
  EventWriter(const std::filesystem::path& folder, std::int64_t first_step);
  // Writes one event; omits values that are not finite. Throws Error if the file cannot be written.
  void write(std::int64_t step, std::span<const Scalar> scalars);

 private:
  void write_record(std::string_view payload);
  std::filesystem::path path_;
  std::ofstream file_;
};

// CRC-32C (Castagnoli), rotated and offset as in TFRecord.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace headroom::train
