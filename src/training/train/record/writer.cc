#include "writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

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

namespace {

namespace fs = std::filesystem;

double per_second(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// Collects the numbers in a metrics line as TensorBoard scalars. Nested values are tagged by path
// ("experts/layer0.attention.source/most").
void collect(const Json& value, const std::string& tag, std::vector<std::pair<std::string, double>>& out) {
  if (value.is_number()) {
    out.emplace_back(tag, value.get<double>());
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      collect(inner, tag + "/" + key, out);
    }
  }
}

void require_finite(const store::Checkpoint& checkpoint) {
  if (const std::string name = store::first_not_finite(checkpoint); !name.empty()) {
    throw store::NotFiniteError(fmt::format("tensor \"{}\" has values that are not finite", name));
  }
}

}  // namespace

class Writer::Files {
 public:
  Files(const WriterOptions& options, std::vector<tasks::FigureKind> figure_kinds)
      : kinds(std::move(figure_kinds)),
        metrics(options.folder / "metrics.jsonl", options.step),
        events(options.folder, options.step + 1),
        progress(options.title, options.steps, "steps") {
    progress.start_at(options.step);
    if (options.samples) {
      samples.emplace(options.folder / "samples.jsonl", options.step);
    }
  }

  void write(std::int64_t step, const char* group, const Json& line) {
    std::vector<std::pair<std::string, double>> named;
    for (const auto& [key, value] : line.items()) {
      if (key != "step") {
        collect(value, std::string(group) + "/" + key, named);
      }
    }
    const std::vector<Scalar> scalars = transformed(named, [](const auto& entry) {
      return Scalar{entry.first, entry.second};
    });
    events.write(step, scalars);
    metrics.append(line);
  }

  std::vector<tasks::FigureKind> kinds;
  MetricsLog metrics;
  std::optional<MetricsLog> samples;
  EventWriter events;
  std::string note;  // of the last step
  Progress progress;
};

Writer::Writer() = default;
Writer::~Writer() = default;

Writer::Writer(const WriterOptions& options, std::vector<tasks::FigureKind> kinds)
    : options_(options),
      files_(options.group->leads() ? std::make_unique<Files>(options, std::move(kinds)) : nullptr) {}

void Writer::step(std::int64_t step, double loss, const LogInterval& interval) {
  if (files_ == nullptr) {
    return;
  }
  files_->note =
      fmt::format("loss {:.3f}, {} tokens/s", loss, format_count(per_second(interval.tokens, interval.seconds)));
  if (const double gflops = options_.step_gflop * per_second(interval.steps, interval.seconds); gflops > 0.0) {
    files_->note +=
        fmt::format(", {:.3g} GFLOP/s ({:.0f}% of the machine's)", gflops, 100.0 * gflops / options_.machine_gflops);
  }
  files_->progress.update(step, files_->note);
}

void Writer::note(std::int64_t step, std::string_view what) {
  if (files_ != nullptr) {
    files_->progress.update(step, what);
  }
}

void Writer::training(const TrainingPoint& point) {
  if (files_ != nullptr) {
    files_->write(point.step, "train", to_json(point));
  }
}

void Writer::validation(const std::vector<ValidationPoint>& all) {
  if (files_ == nullptr) {
    return;
  }
  const ValidationPoint& point = all.back();
  const bool beside_curve = point.predictions == 0 && std::ranges::any_of(all, [](const ValidationPoint& other) {
                              return other.predictions > 0;  // the learning curve is of a part of the data
                            });
  files_->write(point.step, "validation", to_json(point, files_->kinds, beside_curve));
  files_->progress.update(point.step, files_->note);  // no longer "validating"
  const std::string part = point.predictions > 0 ? fmt::format(" (on {})", counted(point.predictions, "prediction"))
                           : beside_curve        ? " (on all)"
                                                 : "";
  log_info("step {}: validation {}{}", point.step, tasks::describe(point.figures, files_->kinds), part);
}

void Writer::sample(std::int64_t step, const std::string& prompt, const std::string& text) {
  constexpr std::size_t kLongest = 600;
  files_->samples->append({{"step", step}, {"prompt", prompt}, {"text", text}});
  log_info("step {}: {}", step, printable(prompt + text, kLongest));
}

void Writer::warning(const std::string& text) {
  if (files_ != nullptr) {
    log_warning("{}", text);
  }
}

void Writer::config(const config::Config& config) {
  if (files_ != nullptr) {
    write_config(config, options_.folder);
  }
}

void Writer::checkpoints_every(std::int64_t steps, double step_seconds) {
  if (files_ == nullptr) {
    return;
  }
  const std::string pause = format_duration(step_seconds * static_cast<double>(steps > 0 ? steps : options_.steps));
  if (steps > 0) {
    log_info("a checkpoint every {} (about {} of training)", steps == 1 ? "step" : fmt::format("{} steps", steps),
             pause);
  } else {
    log_info("a checkpoint at the end only: training takes about {}", pause);
  }
}

fs::path Writer::checkpoint(const store::Checkpoint& checkpoint) {
  if (options_.folder.empty()) {
    require_finite(checkpoint);
    return {};
  }
  if (files_ != nullptr) {
    files_->metrics.sync();
    if (files_->samples) {
      files_->samples->sync();
    }
  }
  return store::write_checkpoint(checkpoint, options_.folder / "checkpoints", options_.keep_checkpoints,
                                 *options_.group);
}

void Writer::best(const store::Checkpoint& checkpoint) {
  if (options_.folder.empty()) {
    require_finite(checkpoint);
    return;
  }
  const fs::path file = best_file(options_.folder);
  if (files_ != nullptr) {
    make_folder(file.parent_path());
  }
  store::save_checkpoint(checkpoint, file, *options_.group);
}

void write_config(const config::Config& config, const fs::path& folder) {
  write_text_file(folder / "config.toml", config::to_toml(config, /*sources=*/true));
}

fs::path best_file(const fs::path& folder) {
  return folder / "checkpoints" / "best.safetensors";
}

}  // namespace headroom::train
