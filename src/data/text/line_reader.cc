#include "line_reader.h"

#include <algorithm>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"

namespace headroom::data {

namespace {

constexpr std::size_t kReadAtOnce = std::size_t{64} << 10;
constexpr std::size_t kLongestTextLine = std::size_t{1} << 20;

}  // namespace

LineReader::LineReader(const std::filesystem::path& path)
    : path_(path.string()), bytes_(open_bytes(path)), buffer_(kReadAtOnce) {}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  ++number_;
  while (true) {
    if (at_ == end_) {
      at_ = 0;
      end_ = bytes_->read(buffer_.data(), buffer_.size());
      if (end_ == 0) {
        number_ -= any ? 0 : 1;
        break;
      }
    }
    any = true;
    const auto begin = buffer_.begin() + static_cast<std::ptrdiff_t>(at_),
               end = buffer_.begin() + static_cast<std::ptrdiff_t>(end_), line_end = std::find(begin, end, '\n');
    line.append(begin, line_end);
    at_ = static_cast<std::size_t>(line_end - buffer_.begin());
    if (line.size() > kLongestTextLine) {
      user_error("{}: must be a sentence, but is longer than {} KiB", place(), kLongestTextLine >> 10);
    }
    if (line_end != end) {
      ++at_;
      break;
    }
  }
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  if (number_ == 1 && line.starts_with(kByteOrderMark)) {
    line.erase(0, kByteOrderMark.size());
  }
  return any;
}

std::string LineReader::place() const {
  return fmt::format("{}:{}", path_, number_);
}

}  // namespace headroom::data
