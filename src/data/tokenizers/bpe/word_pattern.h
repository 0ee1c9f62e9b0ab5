// The regular expressions that split a text into words before byte-pair encoding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::tokenizers {

inline constexpr char32_t kAsciiEnd = 0x80;

// A regular expression as in a Split of tokenizer.json (Oniguruma): alternatives, groups, (?i:...), sets with ranges
// and general categories, \s, greedy and possessive repetitions of one character, (?!x) and (?=x) for one character x,
// $.
class WordPattern {
 public:
  // `pattern` is a regular expression. Throws UserError "<place> ..." for a syntax that is not supported, and for a
  // pattern that can match nothing.
  WordPattern(std::string_view pattern, std::string_view place);

  // Finds the first match from `at` on and stores its start; returns its end, or npos.
  std::size_t find(std::string_view text, std::size_t at, std::size_t& start) const;
  // Returns whether a match can contain the two characters next to each other, or depend on what follows the first one.
  bool can_join(char32_t first, char32_t second) const;
  // Returns whether the character is part of a match wherever it stands.
  bool always_matches(char32_t code) const { return matches_alone(0, code); }

 private:
  class Parser;
  static constexpr std::size_t kUnlimited = static_cast<std::size_t>(-1);  // Node::max
  struct Set {
    std::array<bool, kAsciiEnd> ascii{};  // whether the set contains it
    std::uint32_t categories = 0;         // bits of utf8proc_category_t
    bool spaces = false, negated = false;
    std::vector<std::pair<char32_t, char32_t>> ranges{};
    bool contains(char32_t code) const;
    bool lists(char32_t code) const;
  };
  enum class Kind { set, any_of, followed, not_followed, end };
  struct Node {
    Kind kind = Kind::set;
    int next = -1;  // -1: the pattern has matched
    Set set{};      // set, followed, not_followed
    std::size_t min = 1, max = 1;
    bool possessive = false;
    std::vector<int> choices{};  // any_of
  };

  void parse(std::string_view pattern, std::string_view place);  // sets nodes_
  std::size_t match(int index, std::string_view text, std::size_t at) const;
  void add_first(int index, std::vector<int>& nodes) const;
  bool matches_alone(int index, char32_t code) const;
  bool matches_nothing(int index, bool if_asserted) const;  // whether it can, if assertions hold or without any

  std::vector<Node> nodes_;                          // the first one chooses among the alternatives of the pattern
  std::array<std::vector<int>, kAsciiEnd> choices_;  // the alternatives that can begin with each character of ASCII
  std::vector<std::pair<int, int>> follows_;         // nodes that can consume, or look at, adjacent characters
};

inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A pre-tokenizer: each pattern splits the parts that the previous pattern left into its matches and the text between
// them. The last parts are words, and merges stay inside words. Texts must be valid UTF-8.
class WordSplitter {
 public:
  // Throws UserError "<place> ...".
  WordSplitter(const std::vector<std::string>& patterns, std::string_view place);

  // Calls use(word) for each word.
  template <class Use>
  void split(std::string_view text, Use&& use, std::size_t step = 0) const {
    if (step == patterns_.size()) {
      use(text);
      return;
    }
    const auto part = [&](std::size_t begin, std::size_t end) {
      if (begin < end) {
        split(text.substr(begin, end - begin), use, step + 1);
      }
    };
    for (std::size_t done = 0; done < text.size();) {
      std::size_t start = text.size();
      const std::size_t found = patterns_[step].find(text, done, start), end = std::min(found, text.size());
      part(done, start);
      part(start, end);
      done = end;
    }
  }
  // Returns whether a word ends at `at` (0 < at < text.size()), before white space in ASCII, in any context, so that
  // both sides can be split separately. True at least between an ASCII letter and a space in the patterns that models
  // use.
  bool ends_word(std::string_view text, std::size_t at) const;

 private:
  std::vector<WordPattern> patterns_;
};

}  // namespace headroom::tokenizers
