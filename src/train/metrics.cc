#include "metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::train {
namespace {

// The lines of `path` that are whole and not after `last_step`.
std::vector<Json> read_history(const std::filesystem::path& path, std::int64_t last_step) {
  std::vector<Json> history;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    try {
      Json point = parse_json(line, path.string());
      if (point.is_object() && point.contains("step") && point["step"].is_number_integer() &&
          point["step"].get<std::int64_t>() <= last_step) {
        history.push_back(std::move(point));
      }
    } catch (const MisuseError&) {
      // A line torn by a kill or by a full disk: its step is run again.
    }
  }
  return history;
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path path, std::int64_t last_step)
    : path_(std::move(path)), history_(read_history(path_, last_step)) {
  std::string text;
  for (const Json& point : history_) {
    text += to_json_line(point) + "\n";
  }
  write_text_file(path_, text);
  descriptor_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) {
    fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
}

MetricsLog::~MetricsLog() {
  close(descriptor_);
}

void MetricsLog::append(Json line) {
  const std::string text = to_json_line(line) + "\n";
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) {
      fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
    }
    written += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  history_.push_back(std::move(line));
}

void MetricsLog::sync() {
  if (fsync(descriptor_) != 0) {
    fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
}

}  // namespace headroom::train
