#include "metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "training/train/loop/history.h"

namespace headroom::train {

MetricsLog::MetricsLog(std::filesystem::path path, std::int64_t last_step) : path_(std::move(path)) {
  std::string text;
  for (const Json& point : lines_until(path_, last_step)) {
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

void MetricsLog::append(const Json& line) {
  const std::string text = to_json_line(line) + "\n";
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) {
      fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
    }
    written += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

void MetricsLog::sync() {
  if (fsync(descriptor_) != 0) {
    fail("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
}

}  // namespace headroom::train
