#include "metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "training/train/loop/history.h"

namespace headroom::train {
namespace {

[[noreturn]] void fail_to_write(const std::filesystem::path& path) {
  fail("{}: cannot be written: {}", path.string(), std::strerror(errno));
}

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    }
    table[i] = crc;
  }
  return table;
}

template <class Unsigned>
void append_fixed(std::string& out, Unsigned value) {  // little-endian
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
}

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// Protobuf's wire types: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
void append_key(std::string& out, int field, int wire_type) {
  append_varint(out, static_cast<std::uint64_t>(field << 3 | wire_type));
}
void append_integer(std::string& out, int field, std::int64_t value) {
  append_key(out, field, 0);
  append_varint(out, static_cast<std::uint64_t>(value));
}
void append_double(std::string& out, int field, double value) {
  append_key(out, field, 1);
  append_fixed(out, std::bit_cast<std::uint64_t>(value));
}
void append_float(std::string& out, int field, float value) {
  append_key(out, field, 5);
  append_fixed(out, std::bit_cast<std::uint32_t>(value));
}
void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, 2);
  append_varint(out, bytes.size());
  out.append(bytes);
}

// Event { wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7 }
std::string begin_event(std::int64_t step) {
  std::string event;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  append_double(event, 1, std::chrono::duration<double>(now).count());
  append_integer(event, 2, step);
  return event;
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path path, std::int64_t last_step) : path_(std::move(path)) {
  std::string text;
  for (const Json& point : lines_until(path_, last_step)) {
    text += to_json_line(point) + "\n";
  }
  write_text_file(path_, text);
  descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) {
    fail_to_write(path_);
  }
}

MetricsLog::~MetricsLog() {
  close(descriptor_);
}

void MetricsLog::require_in_place() const {
  struct stat opened {
  }, named{};
  const bool in_place = ::fstat(descriptor_, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  if (!in_place) {
    fail("{}: was deleted or moved during training, so the run cannot be saved; train it again", path_.string());
  }
}

void MetricsLog::append(const Json& line) {
  require_in_place();
  const std::string text = to_json_line(line) + "\n";
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) {
      fail_to_write(path_);
    }
    written += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

void MetricsLog::sync() {
  require_in_place();
  if (fsync(descriptor_) != 0) {
    fail_to_write(path_);
  }
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = crc_table();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  }
  crc = ~crc;
  return std::rotr(crc, 15) + 0xa282ead8U;
}

EventWriter::EventWriter(const std::filesystem::path& folder, std::int64_t first_step)
    : path_(folder / fmt::format("events.out.tfevents.{}.{}.headroom", std::time(nullptr), getpid())) {
  file_.open(path_, std::ios::binary | std::ios::app);
  if (!file_) {
    fail_to_write(path_);
  }
  std::string version = begin_event(0);
  append_bytes(version, 3, "brain.Event:2");
  write_record(version);

  std::string session;
  append_integer(session, 1, 1);  // SessionLog { status = START }
  std::string start = begin_event(first_step);
  append_bytes(start, 7, session);
  write_record(start);
  file_.flush();
}

void EventWriter::write(std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    if (std::isfinite(scalar.value)) {
      std::string value;  // Summary.Value { tag = 1, simple_value = 2 }
      append_bytes(value, 1, scalar.tag);
      append_float(value, 2, static_cast<float>(scalar.value));
      append_bytes(summary, 1, value);
    }
  }
  std::string event = begin_event(step);
  append_bytes(event, 5, summary);
  write_record(event);
  file_.flush();
  if (!file_) {
    fail_to_write(path_);
  }
}

void EventWriter::write_record(std::string_view payload) {
  std::string record;
  append_fixed(record, static_cast<std::uint64_t>(payload.size()));
  append_fixed(record, masked_crc32c(record));
  record.append(payload);
  append_fixed(record, masked_crc32c(payload));
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
}

}  // namespace headroom::train
