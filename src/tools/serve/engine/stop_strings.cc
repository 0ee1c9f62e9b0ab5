#include "stop_strings.h"

#include <algorithm>
#include <utility>

namespace headroom::serve {

std::string StopStrings::push(std::string_view piece) {
  if (stopped_) {
    return {};
  }
  if (stops_.empty()) {
    return std::string(piece);
  }
  held_ += piece;
  std::size_t sure = first_stop();
  stopped_ = sure != std::string::npos;
  if (!stopped_) {
    sure = held_.size() - beginning_at_end();
  }
  std::string text = held_.substr(0, sure);
  held_.erase(0, sure);
  return text;
}

std::string StopStrings::finish() {
  return stopped_ ? std::string() : std::exchange(held_, {});
}

std::size_t StopStrings::first_stop() const {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
  }
  return first;
}

// How many bytes at the end may be the beginning of a stop string.
std::size_t StopStrings::beginning_at_end() const {
  const std::string_view held = held_;
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, held.size()); size > longest; --size) {
      if (held.ends_with(std::string_view(stop).substr(0, size))) {
        longest = size;
      }
    }
  }
  return longest;
}

}  // namespace headroom::serve
