// Scalars for TensorBoard: its event file format, written by hand (a TFRecord of Event messages).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace headroom::train {

struct Scalar {
  std::string_view tag;
  double value;
};

// One `events.out.tfevents.<time>.<pid>.headroom` file. A resumed run opens a new one and TensorBoard shows both as
// one curve: the session mark at the beginning makes readers discard what an earlier file said of later steps.
class EventWriter {
 public:
  // Throws Error naming the file that cannot be made.
  EventWriter(const std::filesystem::path& folder, std::int64_t first_step);
  // One event; scalars that are not finite are left out. Throws Error when the file cannot be written.
  void write(std::int64_t step, std::span<const Scalar> scalars);

 private:
  void write_record(std::string_view payload);
  std::filesystem::path path_;
  std::ofstream file_;
};

// CRC-32C (Castagnoli) as TFRecord wants it: rotated and offset.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace headroom::train
