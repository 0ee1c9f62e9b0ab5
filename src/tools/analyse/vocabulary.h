// Distinct tokens and words of a text, indexed in order of appearance, and kinds of tokens.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model_runner.h"

namespace headroom::analyse {

// Indexes distinct texts, up to a limit.
class TextIndex {
 public:
  explicit TextIndex(std::size_t limit) : limit_(limit) {}
  std::int64_t of(const std::string& text);  // adds the text if new; -1 beyond the limit
  std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }
  const std::string& text(std::int64_t i) const { return texts_[static_cast<std::size_t>(i)]; }

 private:
  std::size_t limit_;
  std::unordered_map<std::string, std::int64_t> indices_;
  std::vector<std::string> texts_;
};

inline constexpr std::array<std::string_view, 6> kTokenKinds = {"blank",       "number",     "punctuation",
                                                                "capitalised", "lower case", "other"};
// Returns an index into kTokenKinds, determined by the token's first non-blank character.
std::int64_t token_kind(std::string_view token);

class Vocabulary {
 public:
  explicit Vocabulary(const ModelRunner& runner);
  // Indices for the tokens [B, T] in row-major order: the token and its word. Words are separated by blanks
  // and stripped of punctuation. The word index is -1 for blanks, punctuation, and words that may be cut off at the
  // ends of a row.
  struct Indices {
    std::vector<std::int64_t> token, word;
  };
  Indices index(const at::Tensor& tokens, TextSide side);
  const TextIndex& tokens() const { return tokens_; }
  const TextIndex& words() const { return words_; }

 private:
  struct TokenEntry {
    std::string text;
    std::int64_t index = -1;
  };
  const TokenEntry& entry(std::int64_t id, TextSide side);
  void index_words(const std::int64_t* ids, std::int64_t n, TextSide side, std::int64_t* words);

  ModelRunner runner_;
  TextIndex tokens_, words_;
  std::map<std::pair<TextSide, std::int64_t>, TokenEntry> entries_;
};

}  // namespace headroom::analyse
