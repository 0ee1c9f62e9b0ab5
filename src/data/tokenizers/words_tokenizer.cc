#include <algorithm>
#include <unordered_map>
#include <utility>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "kinds.h"

namespace headroom::tokenizers {
namespace {

constexpr std::int32_t kUnknown = 0, kEndOfLine = 1;
constexpr std::string_view kSpecial = "<unk>\n<eos>\n";
constexpr std::string_view kBlanks = " \t\r\f\v";

// Calls use(word) for every word of the line.
template <class Use>
void for_each_word(std::string_view line, Use&& use) {
  std::size_t begin = 0;
  while ((begin = line.find_first_not_of(kBlanks, begin)) != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    use(line.substr(begin, end - begin));
    begin = end;
  }
}

// Calls word(w) for every word of the text and line_end() for every line end.
template <class Word, class LineEnd>
void scan(std::string_view text, Word&& word, LineEnd&& line_end) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    for_each_word(text.substr(0, end), word);
    if (end == std::string_view::npos) {
      return;
    }
    line_end();
    text.remove_prefix(end + 1);
  }
}

class Words : public Tokenizer {
 public:
  explicit Words(std::string lines) : lines_(std::move(lines)) {
    scan(
        lines_, [this](std::string_view word) { words_.push_back(word); }, [] {});
    ids_.reserve(words_.size());
    for (std::size_t id = 0; id < words_.size(); ++id) {
      ids_.emplace(words_[id], static_cast<std::int32_t>(id));
    }
  }
  Words(const Words&) = delete;  // words_ has views of lines_
  Words& operator=(const Words&) = delete;

  config::TokenizerKind kind() const override { return config::TokenizerKind::words; }
  std::int64_t vocabulary_size() const override { return std::ssize(words_); }
  const std::string& serialised() const override { return lines_; }
  bool has_duplicates() const { return ids_.size() != words_.size(); }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    scan(
        text,
        [&](std::string_view word) {
          const auto found = ids_.find(word);
          ids.push_back(found == ids_.end() ? kUnknown : found->second);
        },
        [&] { ids.push_back(kEndOfLine); });
  }

  Unknown unknown(std::string_view text) const override {
    Unknown unknown;
    scan(
        text,
        [&](std::string_view word) {
          if (!ids_.contains(word)) {
            unknown.tokens += 1;
            unknown.bytes += std::ssize(word);
          }
        },
        [] {});
    return unknown;
  }

  std::int64_t decoded_bytes(std::string_view text, std::span<const std::int32_t> /*ids*/) const override {
    std::int64_t bytes = 0;
    bool first = true;
    scan(
        text, [&](std::string_view word) { bytes += std::ssize(word) + (std::exchange(first, false) ? 0 : 1); },
        [&] {
          ++bytes;
          first = true;
        });
    return bytes;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      check_id(id, vocabulary_size());
      if (id == kEndOfLine) {
        text += '\n';
        continue;
      }
      if (!text.empty() && text.back() != '\n') {
        text += ' ';
      }
      text += words_[static_cast<std::size_t>(id)];
    }
    return text;
  }

 private:
  std::string lines_;
  std::vector<std::string_view> words_;
  std::unordered_map<std::string_view, std::int32_t> ids_;
};

struct ViewHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Counts = std::unordered_map<std::string, std::int64_t, ViewHash, std::equal_to<>>;

Counts count_words(TextSource& text) {
  Counts counts;
  BlockReader blocks(text, "count words");
  for (std::string block; blocks.next(block);) {
    scan(
        block,
        [&](std::string_view word) {
          const auto found = counts.find(word);
          if (found == counts.end()) {
            counts.emplace(word, 1);
          } else {
            ++found->second;
          }
        },
        [] {});
  }
  return counts;
}

}  // namespace

std::unique_ptr<Tokenizer> train_words(const config::TokenizerOptions& options, TextSource& text) {
  Counts counts = count_words(text);
  if (counts.empty()) {
    user_error("tokenizer: the training text holds no words");
  }
  counts.erase("<unk>");
  counts.erase("<eos>");
  std::vector<std::pair<std::int64_t, std::string_view>> order;
  for (const auto& [word, count] : counts) {
    order.emplace_back(-count, word);
  }
  std::ranges::sort(order);

  const std::int64_t special = std::ranges::count(kSpecial, '\n');
  const std::int64_t all = std::ssize(order) + special;
  const std::int64_t wanted = options.vocabulary_size == 0 ? all : options.vocabulary_size;
  if (wanted > all || wanted < special) {
    user_error(
        "tokenizer.vocabulary_size: must be from {} to {}, the number of distinct words in the training text, got {}",
        special, all, wanted);
  }
  std::string lines(kSpecial);
  for (std::int64_t i = 0; i < wanted - special; ++i) {
    lines += order[static_cast<std::size_t>(i)].second;
    lines += '\n';
  }
  return std::make_unique<Words>(std::move(lines));
}

std::unique_ptr<Tokenizer> restore_words(std::string serialised, std::string_view origin) {
  if (!serialised.starts_with(kSpecial) || !serialised.ends_with('\n') || !is_utf8(serialised) ||
      serialised.find("\n\n") != std::string::npos || serialised.find_first_of(kBlanks) != std::string::npos) {
    user_error("{}: not a words tokenizer: expected one word a line, the first two <unk> and <eos>", origin);
  }
  auto words = std::make_unique<Words>(std::move(serialised));
  if (words->has_duplicates()) {
    user_error("{}: not a words tokenizer: it has duplicate words", origin);
  }
  return words;
}

}  // namespace headroom::tokenizers
