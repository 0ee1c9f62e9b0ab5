#include "text_share.h"

#include <algorithm>
#include <utility>

#include "headroom/core/error.h"

namespace headroom::data {
namespace {

std::int64_t size_of(tokenizers::TextSource& text) {
  std::int64_t size = 0;
  for (std::string block; text.next(block);) {
    size += std::ssize(block);
  }
  text.rewind();
  return size;
}

// The first line end from `wanted` on, or the last one before where the text has none after; 0 where it has none at
// all. The end of the text does not count.
std::int64_t line_end_near(tokenizers::TextSource& text, std::int64_t wanted, std::int64_t size) {
  std::int64_t begin = 0, last = 0;
  for (std::string block; last < wanted && text.next(block); begin += std::ssize(block)) {
    if (begin + std::ssize(block) == size) {
      block.pop_back();  // the end of the text
    }
    const auto from = static_cast<std::size_t>(std::max<std::int64_t>(wanted - begin - 1, 0));
    const std::size_t after = block.find('\n', from), found = after == std::string::npos ? block.rfind('\n') : after;
    last = found == std::string::npos ? last : begin + static_cast<std::int64_t>(found) + 1;
  }
  text.rewind();
  return last;
}

class TextShare : public tokenizers::TextSource {
 public:
  TextShare(std::unique_ptr<tokenizers::TextSource> whole, double share, Split split, std::string name)
      : whole_(std::move(whole)), share_(share), split_(split), name_(std::move(name)) {}

  bool next(std::string& block) override {
    find_cut();
    const bool train = split_ == Split::train;
    while ((!train || at_ < cut_) && whole_->next(block)) {
      const auto before = static_cast<std::size_t>(std::clamp<std::int64_t>(cut_ - at_, 0, std::ssize(block)));
      at_ += std::ssize(block);
      train ? block.erase(before) : block.erase(0, before);
      if (!block.empty()) {
        return true;
      }
    }
    return false;
  }
  void rewind() override {
    whole_->rewind();
    at_ = 0;
  }
  std::int64_t bytes_read() const override { return whole_->bytes_read(); }
  std::int64_t bytes_total() const override { return whole_->bytes_total(); }
  std::string fingerprint() const override {
    return fmt::format("{}\n{} held out, {}", whole_->fingerprint(), share_,
                       split_ == Split::train ? "without them" : "they alone");
  }

 private:
  void find_cut() {
    if (cut_ > 0) {
      return;
    }
    const std::int64_t size = size_of(*whole_);
    const auto held_out = static_cast<std::int64_t>(share_ * static_cast<double>(size));
    cut_ = line_end_near(*whole_, std::max<std::int64_t>(size - held_out, 1), size);
    if (cut_ == 0) {
      user_error("data.validation: must name files: {} has a single line, of which none can be held out", name_);
    }
  }

  std::unique_ptr<tokenizers::TextSource> whole_;
  double share_;
  Split split_;
  std::string name_;
  std::int64_t cut_ = 0, at_ = 0;  // bytes of the whole text
};

}  // namespace

std::unique_ptr<tokenizers::TextSource> open_share(std::unique_ptr<tokenizers::TextSource> whole, double share,
                                                   Split split, std::string name) {
  return std::make_unique<TextShare>(std::move(whole), share, split, std::move(name));
}

}  // namespace headroom::data
