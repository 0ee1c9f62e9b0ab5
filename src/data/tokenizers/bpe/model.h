// The contents of a byte-level BPE tokenizer, and the files that hold one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "merges.h"
#include "words.h"

namespace headroom::tokenizers {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool normalised = false;  // looked for after normalisation rather than before
  bool special = false;     // of no meaning here; kept for other readers of the file
};

struct BpeModel {
  // By id. Every byte is written as one printable character (that of GPT-2's table); empty where an added token or
  // nothing stands.
  std::vector<std::string> tokens;
  std::vector<Merge> merges;
  std::vector<AddedToken> added;  // by id
  WordPattern pattern = WordPattern::gpt2;
  bool composes = false;           // the text is brought to NFC first
  bool whole_words_first = false;  // a word that is a token is that token, whatever the merges make of it
  std::string post_processor;      // JSON, of no meaning here
  std::int64_t spare_ids = 0;      // after the last token, for models that know more than their tokenizer has
};

// Errors of all of these are MisuseErrors of one sentence that begins with `origin` or the file's name.

// A tokenizer.json, refused by name where it asks for what is not known here. Ids must be 0 to n-1, each once.
BpeModel parse_tokenizer_json(std::string_view text, std::string_view origin);
// GPT-2's pair: a JSON object of tokens and ids, and lines of two tokens that merge. "<|endoftext|>", where it is a
// token, is looked for in the text.
BpeModel parse_vocabulary_and_merges(std::string_view vocabulary, std::string_view merges, std::string_view origin,
                                     std::string_view merges_origin);

// As a tokenizer.json, always the same text for the same model; parse_tokenizer_json() gives the model back.
std::string to_tokenizer_json(const BpeModel& model);

// The byte that each character of a token spells; false where one spells none.
bool spelled_bytes(std::string_view token, std::string& bytes);
std::string character_of_byte(unsigned char byte);

}  // namespace headroom::tokenizers
