// The pre-tokenizer of byte-level BPE: splits a text into words. Merges never cross a word boundary.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace headroom::tokenizers {

// All texts passed to the functions below must be valid UTF-8.

// Returns the NFC form: canonical decomposition, then canonical composition.
std::string to_nfc(std::string_view text);

// Returns GPT-2's character for a byte: the byte itself for printable Latin-1, otherwise a character from U+0100 on.
std::string character_of_byte(unsigned char byte);
// The inverse for a whole token: stores its bytes, or returns false if one of its characters stands for no byte.
bool spelled_bytes(std::string_view token, std::string& bytes);

// The supported patterns, named after the tokenizers that introduced them.
enum class WordPattern {
  gpt2,    // contractions; runs of letters, digits or other characters, each with at most one leading space
  llama3,  // contractions in any case; letters with any one leading character; up to three digits; line ends separate
  qwen2,   // as llama3, but each digit is a word
};

struct PatternText {
  WordPattern pattern;
  std::string_view regex;  // as spelled in a tokenizer.json
};
std::span<const PatternText> pattern_texts();

// Returns the length in bytes of the word that begins at `at` < text.size(). Words follow each other without gaps.
std::size_t word_length(WordPattern pattern, std::string_view text, std::size_t at);

// Returns whether a word ends at `at` (0 < at < text.size()) in any context, so that both sides can be split
// separately. True at least between a letter and an ASCII space or line end.
bool ends_word(WordPattern pattern, std::string_view text, std::size_t at);

}  // namespace headroom::tokenizers
