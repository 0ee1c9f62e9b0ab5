// A bounded, deterministic random sample of the lines of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "foundation/core/random.h"

namespace headroom::tokenizers {

// Each line gets a pseudo-random rank from its number. Lines with a rank up to `bar_` are kept, and `bar_` is halved
// whenever the kept lines exceed `limit` bytes. This takes one pass and does not need the length of the text in
// advance.
class LineSample {
 public:
  explicit LineSample(std::size_t limit) : limit_(limit) {}

  void offer(std::string_view line) {
    const std::uint64_t rank = mix(kSeed, number_++);
    if (rank > bar_) {
      return;
    }
    kept_.emplace_back(rank, line);
    bytes_ += line.size();
    while (bytes_ > limit_ && kept_.size() > 1) {
      lower_bar();
    }
  }

  std::vector<std::string> take() {
    std::vector<std::string> lines;
    lines.reserve(kept_.size());
    for (auto& [rank, line] : kept_) {
      lines.push_back(std::move(line));
    }
    kept_.clear();
    return lines;
  }

 private:
  static constexpr std::uint64_t kSeed = 0x6c696e6573ULL;

  void lower_bar() {
    bar_ /= 2;
    std::erase_if(kept_, [this](const auto& kept) { return kept.first > bar_; });
    bytes_ = 0;
    for (const auto& [rank, line] : kept_) {
      bytes_ += line.size();
    }
  }

  std::size_t limit_, bytes_ = 0;
  std::uint64_t number_ = 0, bar_ = UINT64_MAX;
  std::vector<std::pair<std::uint64_t, std::string>> kept_;
};

}  // namespace headroom::tokenizers
