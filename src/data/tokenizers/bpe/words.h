// The words that a byte-level tokenizer's merges stay inside: a text cut up by the pattern of its pre-tokenizer.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace headroom::tokenizers {

// The patterns that are known, by the tokenizers that brought them up.
enum class WordPattern {
  gpt2,    // contractions; runs of letters, of numbers, of the rest, each with a blank in front; blanks
  llama3,  // contractions in any case; any character in front of letters; numbers by threes; line ends apart
  qwen2,   // the same, numbers one by one
};

struct PatternText {
  WordPattern pattern;
  std::string_view regex;  // as a tokenizer.json writes it
};
std::span<const PatternText> pattern_texts();

// Bytes of the word that begins at `at` < text.size(); the words of a text follow one another without gaps. `text` is
// valid UTF-8.
std::size_t word_length(WordPattern pattern, std::string_view text, std::size_t at);

// Whether a word always ends at `at` (0 < at < text.size()), and what comes before and after can be cut up apart. True
// at least where a letter is followed by a blank or line end in ASCII.
bool ends_word(WordPattern pattern, std::string_view text, std::size_t at);

}  // namespace headroom::tokenizers
