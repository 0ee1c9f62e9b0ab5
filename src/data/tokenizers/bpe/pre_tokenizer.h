// The pre-tokenizer of byte-level BPE: splits a text into words, inside which merges stay.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace headroom::tokenizers {

// All texts below must be valid UTF-8.

// Canonical decomposition, then canonical composition.
std::string to_nfc(std::string_view text);

// GPT-2's spelling of bytes: a printable Latin-1 byte is that character, any other byte one from U+0100 on.
std::string character_of_byte(unsigned char byte);
// Inverse: the bytes that a token spells; false if one of its characters spells none.
bool spelled_bytes(std::string_view token, std::string& bytes);

// Supported patterns, by the tokenizers that introduced them.
enum class WordPattern {
  gpt2,    // contractions; runs of letters, digits or other characters, each with at most one leading blank; blanks
  llama3,  // contractions in any case; letters with any one leading character; up to three digits; line ends separate
  qwen2,   // as llama3, digits one by one
};

struct PatternText {
  WordPattern pattern;
  std::string_view regex;  // as in a tokenizer.json
};
std::span<const PatternText> pattern_texts();

// Length in bytes of the word that begins at `at` < text.size(). Words follow each other without gaps.
std::size_t word_length(WordPattern pattern, std::string_view text, std::size_t at);

// Whether a word ends at `at` (0 < at < text.size()) whatever the context, so that both sides can be split separately.
// True at least between a letter and an ASCII blank or line end.
bool ends_word(WordPattern pattern, std::string_view text, std::size_t at);

}  // namespace headroom::tokenizers
