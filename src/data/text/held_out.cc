#include "text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "foundation/core/random.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::data {
namespace {

std::int64_t total(const std::vector<Range>& ranges) {
  return sum_over(ranges, &Range::size);
}

// The result of one pass over a text.
struct Outline {
  std::int64_t size = 0;             // bytes
  std::vector<std::int64_t> starts;  // of the documents
};

Outline outline_of(tokenizers::TextSource& text) {
  Outline outline;
  for (std::string block; text.next(block); outline.size += std::ssize(block)) {
    for (const std::size_t start : text.document_starts()) {
      outline.starts.push_back(outline.size + static_cast<std::int64_t>(start));
    }
  }
  text.rewind();
  return outline;
}

// Returns the position after the first line end at or after `wanted`; else after the last line end before it; else 0. A
// line end at the end of the text does not count.
std::int64_t line_end_near(tokenizers::TextSource& text, std::int64_t wanted, std::int64_t size) {
  std::int64_t begin = 0, last = 0;
  for (std::string block; last < wanted && text.next(block); begin += std::ssize(block)) {
    if (begin + std::ssize(block) == size) {
      block.pop_back();  // excludes a line end at the end of the text
    }
    const auto from = static_cast<std::size_t>(std::max<std::int64_t>(wanted - begin - 1, 0));
    const std::size_t after = block.find('\n', from), found = after == std::string::npos ? block.rfind('\n') : after;
    last = found == std::string::npos ? last : begin + static_cast<std::int64_t>(found) + 1;
  }
  text.rewind();
  return last;
}

// One split of a text. The first call of next() finds the ranges, which reads the text up to two extra times.
class SplitText : public tokenizers::TextSource {
 public:
  SplitText(std::unique_ptr<tokenizers::TextSource> whole, const config::DataOptions& options, Split split,
            std::string name)
      : whole_(std::move(whole)),
        share_(options.validation_fraction),
        draws_(options.order == config::Order::shuffled),
        split_(split),
        name_(std::move(name)) {}

  bool next(std::string& block) override {
    find_ranges();
    block.clear();
    starts_.clear();
    for (std::string all; block.empty() && whole_->next(all); at_ += std::ssize(all)) {
      const std::span<const std::size_t> starts = whole_->document_starts();
      const std::int64_t end = at_ + std::ssize(all);
      for (auto range = std::ranges::upper_bound(ranges_, at_, {}, &Range::end);
           range != ranges_.end() && range->begin < end; ++range) {
        const auto from = static_cast<std::size_t>(std::max(range->begin - at_, std::int64_t{0}));
        const auto to = static_cast<std::size_t>(std::min(range->end - at_, std::ssize(all)));
        if (range->begin >= at_ && !std::ranges::binary_search(starts, from)) {
          starts_.push_back(block.size());  // what remains of a document that the split cuts
        }
        for (const std::size_t start : starts) {
          if (from <= start && start < to) {
            starts_.push_back(block.size() + start - from);
          }
        }
        block.append(all, from, to - from);
      }
    }
    return !block.empty();
  }
  std::span<const std::size_t> document_starts() const override { return starts_; }
  void rewind() override {
    whole_->rewind();
    at_ = 0;
  }
  std::int64_t bytes_read() const override { return whole_->bytes_read(); }
  std::int64_t bytes_total() const override { return whole_->bytes_total(); }
  std::string fingerprint() const override {
    return fmt::format("{}\n{} held out, {}, {}", whole_->fingerprint(), share_, draws_ ? "drawn" : "at the end",
                       split_ == Split::train ? "without them" : "they alone");
  }

 private:
  void find_ranges() {
    if (!ranges_.empty()) {
      return;
    }
    const Outline outline = outline_of(*whole_);
    std::vector<Range> held;
    if (draws_ && outline.starts.size() > 1) {
      held = drawn_documents(documents_between(outline.starts, outline.size), share_);
    } else {
      const auto wanted = outline.size - static_cast<std::int64_t>(share_ * static_cast<double>(outline.size));
      held = {{line_end_near(*whole_, std::max<std::int64_t>(wanted, 1), outline.size), outline.size}};
      if (held.front().begin == 0) {
        user_error("data.validation: must name files: {} has a single line, so none can be held out", name_);
      }
    }
    ranges_ = split_ == Split::validation ? held : complement(held, outline.size);
  }

  std::unique_ptr<tokenizers::TextSource> whole_;
  double share_;
  bool draws_;
  Split split_;
  std::string name_;
  std::vector<Range> ranges_;  // of the split, in bytes of the whole text
  std::vector<std::size_t> starts_;
  std::int64_t at_ = 0;  // bytes read of the whole text
};

}  // namespace

std::vector<Range> documents_between(const std::vector<std::int64_t>& starts, std::int64_t size) {
  std::vector<Range> documents;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    documents.push_back({starts[i], i + 1 < starts.size() ? starts[i + 1] : size});
  }
  return documents;
}

std::vector<Range> drawn_documents(const std::vector<Range>& documents, double share) {
  constexpr std::uint64_t kSeed = 0x5ea1ed;
  constexpr double kTooMuch = 1.5;  // times the wanted size
  const auto size = static_cast<double>(total(documents));
  const double wanted = share * size;
  // One document is drawn from each of these equal parts of the text.
  const double parts = std::max(1.0, std::round(share * static_cast<double>(documents.size())));
  std::vector<Range> drawn;
  std::uint64_t least = 0;
  double part = -1.0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const Range& document = documents[i];
    const double own = std::floor(static_cast<double>(document.begin) / size * parts);
    const std::uint64_t lot = mix(kSeed, static_cast<std::uint64_t>(i));
    if (static_cast<double>(document.size()) > kTooMuch * wanted || (own == part && lot >= least)) {
      continue;
    }
    if (own == part) {
      drawn.back() = document;
    } else {
      drawn.push_back(document);
    }
    part = own;
    least = lot;
  }
  if (drawn.empty() || drawn.size() == documents.size()) {
    drawn = {*std::ranges::min_element(documents, {}, &Range::size)};
  }
  return drawn;
}

std::vector<Range> complement(const std::vector<Range>& ranges, std::int64_t size) {
  std::vector<Range> rest;
  std::int64_t at = 0;
  for (const Range& range : ranges) {
    if (range.begin > at) {
      rest.push_back({at, range.begin});
    }
    at = range.end;
  }
  if (at < size) {
    rest.push_back({at, size});
  }
  return rest;
}

std::unique_ptr<tokenizers::TextSource> split_of(std::unique_ptr<tokenizers::TextSource> whole,
                                                 const config::DataOptions& options, Split split, std::string name) {
  return std::make_unique<SplitText>(std::move(whole), options, split, std::move(name));
}

}  // namespace headroom::data
