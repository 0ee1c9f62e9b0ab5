// The contents of a byte-level BPE tokenizer, and the file formats that hold one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "merges.h"
#include "pre_tokenizer.h"

namespace headroom::tokenizers {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool normalised = false;  // matched after normalisation instead of before
  bool special = false;     // not used here; kept for other readers of the file
};

struct BpeModel {
  // By id, every byte written as one printable character (character_of_byte()). Empty for ids of added tokens only.
  std::vector<std::string> tokens;
  std::vector<Merge> merges;
  std::vector<AddedToken> added;  // by id
  WordPattern pattern = WordPattern::gpt2;
  bool composes = false;           // text is normalised to NFC
  bool whole_words_first = false;  // a word that is a token becomes that token without merging
  std::string post_processor;      // JSON; not used here
  std::int64_t spare_ids = 0;      // ids without text after the last token, for models with a larger vocabulary
};

// The parsers throw UserError, prefixed with the origin.
// Parses a tokenizer.json; refuses unsupported settings by name. Ids must be 0 to n-1, each once.
BpeModel parse_tokenizer_json(std::string_view text, std::string_view origin);
// Parses GPT-2's pair of files: a JSON object of tokens and ids, and lines of two tokens to merge. If "<|endoftext|>"
// is in the vocabulary, it becomes an added token.
BpeModel parse_vocabulary_and_merges(std::string_view vocabulary, std::string_view merges, std::string_view origin,
                                     std::string_view merges_origin);

// Writes a tokenizer.json, deterministically; parse_tokenizer_json() restores the model.
std::string to_tokenizer_json(const BpeModel& model);

// Words and their frequencies. Their order does not matter.
using WordCounts = std::unordered_map<std::string, std::int64_t>;

// Learns BPE (Sennrich et al., 2016): starts with one token per byte, ordered by their characters, and repeatedly
// merges the most frequent adjacent pair over all words, of equally frequent ones the pair with the smaller ids (as the
// `tokenizers` package does). Stops at `vocabulary_size` tokens, or earlier when every word is a single token. Throws
// InterruptedError on Ctrl-C.
BpeModel learn_merges(const WordCounts& words, std::int64_t vocabulary_size);

}  // namespace headroom::tokenizers
