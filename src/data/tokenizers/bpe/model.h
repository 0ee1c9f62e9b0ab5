// Byte-level BPE: the merges, the contents of a tokenizer, and the file formats that store it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "headroom/core/json.h"
#include "word_pattern.h"

namespace headroom::tokenizers {

// The two functions below require valid UTF-8.

// Returns the NFC form: canonical decomposition, then canonical composition.
std::string to_nfc(std::string_view text);

// Returns GPT-2's character for a byte: the byte itself for printable Latin-1, otherwise a character from U+0100 on.
std::string character_of_byte(unsigned char byte);
// The inverse for a whole token: stores its bytes, or returns false if one of its characters stands for no byte.
bool spelled_bytes(std::string_view token, std::string& bytes);

// Byte-pair encoding of one word: merges adjacent symbols, earliest-learnt pair first.

struct Merge {
  std::int32_t left, right, result;  // token ids
};

class Merges {
 public:
  // `merges` must be in the order in which they were learnt. If a pair occurs twice, the last occurrence counts.
  explicit Merges(const std::vector<Merge>& merges);

  // Merges the symbols of a word in place until no adjacent pair is in the table. Equal pairs merge from left to right.
  // Takes O(n log n) time.
  void apply(std::vector<std::int32_t>& symbols) const;

 private:
  struct Slot {
    std::int32_t left, right;  // left == -1: empty slot
    std::int32_t rank, result;
  };
  const Slot* find(std::int32_t left, std::int32_t right) const;
  std::size_t place(std::int32_t left, std::int32_t right) const;
  void apply_short(std::vector<std::int32_t>& symbols) const;
  void apply_long(std::vector<std::int32_t>& symbols) const;

  std::vector<Slot> slots_;  // hash table; its size is a power of two, and it is at most half full
};

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool normalised = false;  // matched after normalisation instead of before
  bool special = false;     // not used here; stored for other readers of the file
};

struct BpeModel {
  // Indexed by id. Every byte is written as one printable character (character_of_byte()). Empty for ids that only an
  // added token has.
  std::vector<std::string> tokens;
  std::vector<Merge> merges;
  std::vector<AddedToken> added;                               // sorted by id
  std::vector<std::string> words = {std::string(kGpt2Words)};  // the patterns of a WordSplitter
  bool composes = false;                                       // text is normalised to NFC
  bool whole_words_first = false;  // a word that is a token becomes that token without merging
  std::string post_processor;      // JSON; not used here, stored for other readers of the file
  std::int64_t spare_ids = 0;      // ids without text after the last token, for models with a larger vocabulary
};

// Parses a tokenizer.json. Throws UserError, prefixed with the origin, for malformed input, for unsupported settings
// (naming them), and unless the ids are 0 to n-1, each once.
BpeModel parse_tokenizer_json(std::string_view text, std::string_view origin);

// A special token that a file names: a string, or an object with its content and flags.
struct NamedToken {
  SortedJson token;
  std::string place;  // the file and the key
  bool special = true;
  bool flag(const char* name, bool otherwise = false) const {
    return token.is_object() ? token.value(name, SortedJson(otherwise)) == true : otherwise;
  }
  bool normalised() const { return flag("normalized", !special); }  // whether it is matched in the normalised text
  const SortedJson& content() const {
    return token.is_object() && token.contains("content") ? token["content"] : token;
  }
};
// Returns the special tokens that special_tokens_map.json and tokenizer_config.json name. Tokens that the vocabulary
// lacks are in the order in which transformers adds them. `defaults`: tokens for keys that neither file has.
std::vector<NamedToken> named_special_tokens(const std::filesystem::path& folder,
                                             const std::map<std::string, std::string>& defaults = {});

// Returns the special tokens that transformers' tokenizer class for a folder has if no file names others. The class is
// named in tokenizer_config.json or else follows from the model in config.json; empty if unknown.
std::map<std::string, std::string> default_tokens(const std::filesystem::path& folder);

// Returns the tokens that tokenizer_config.json adds, by id; without added_tokens_decoder, those that added_tokens.json
// adds. `special`: the special tokens of added_tokens.json. Throws UserError for a wrong id.
std::map<std::int32_t, NamedToken> added_tokens_beside(const std::filesystem::path& folder,
                                                       const std::vector<NamedToken>& special);

// Settings from the files next to a vocabulary and its merges.
struct PairSettings {
  std::string words;  // the pattern of a WordSplitter
  bool composes = false;
  std::vector<AddedToken> added;     // by id
  std::vector<std::string> special;  // tokens that are matched in texts; those without an id get the next ones
  std::int64_t most_ids = 0;         // the model's vocabulary size, from which on no token gets an id; 0: unknown
};
// Reads tokenizer_config.json, special_tokens_map.json, added_tokens.json and the model_type in config.json, all of
// them optional. Throws UserError naming the file and a setting that is not supported.
PairSettings read_pair_settings(const std::filesystem::path& folder);

// Parses GPT-2's pair of files: a JSON object that maps tokens to ids, and lines with the two tokens of each merge.
// Throws UserError, prefixed with the origin.
struct PairTexts {
  std::string_view vocabulary, origin, merges, merges_origin;
};
BpeModel parse_vocabulary_and_merges(const PairTexts& texts, const PairSettings& settings);

// Writes a tokenizer.json. The output is deterministic, and parse_tokenizer_json() restores the model.
std::string to_tokenizer_json(const BpeModel& model);

// Words and their frequencies; the order of iteration does not matter.
using WordCounts = std::unordered_map<std::string, std::int64_t>;

// Learns BPE (Sennrich et al., 2016). Starts with one token per byte, ordered by their characters, and repeatedly
// merges the most frequent adjacent pair over all words; ties go to the pair with the smaller ids, as in the
// `tokenizers` package. Stops at `vocabulary_size` tokens, or earlier when every word is a single token. Throws
// InterruptedError on Ctrl-C.
BpeModel learn_merges(const WordCounts& words, std::int64_t vocabulary_size);

}  // namespace headroom::tokenizers
