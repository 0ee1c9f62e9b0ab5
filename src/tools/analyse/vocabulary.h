// What the tokens of a text are: their words and kinds, numbered as they come.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reader.h"

namespace headroom::inspect {

// Texts by number, up to a limit; those that come later have none.
class Numbering {
 public:
  explicit Numbering(std::size_t limit) : limit_(limit) {}
  std::int64_t of(const std::string& text);  // -1: beyond the limit
  std::int64_t size() const { return static_cast<std::int64_t>(texts_.size()); }
  const std::string& text(std::int64_t i) const { return texts_[static_cast<std::size_t>(i)]; }

 private:
  std::size_t limit_;
  std::unordered_map<std::string, std::int64_t> numbers_;
  std::vector<std::string> texts_;
};

inline constexpr std::array<std::string_view, 6> kTokenKinds = {"blank",       "number",     "punctuation",
                                                                "capitalised", "lower case", "other"};
// Which of kTokenKinds a token is, by its first character that is not blank.
std::int64_t token_kind(std::string_view token);

class Vocabulary {
 public:
  explicit Vocabulary(const Reader& reader);
  // Of each of the tokens [B, T] in row-major order: its number, that of the word which it belongs to, and its kind. A
  // word is what blanks separate, without the punctuation around it; -1 where there is none: blanks, punctuation, and
  // words that a row's ends may have cut.
  struct Numbers {
    std::vector<std::int64_t> token, word, kind;
  };
  Numbers number(const at::Tensor& tokens, Side side);
  const Numbering& tokens() const { return tokens_; }
  const Numbering& words() const { return words_; }

 private:
  struct Known {
    std::string text;
    std::int64_t number = -1, kind = 0;
  };
  const Known& known(std::int64_t id, Side side);
  void number_words(const std::int64_t* ids, std::int64_t n, Side side, std::int64_t* words);

  Reader reader_;
  Numbering tokens_, words_;
  std::map<std::pair<Side, std::int64_t>, Known> known_;
};

}  // namespace headroom::inspect
