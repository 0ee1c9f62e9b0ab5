// Reads serialised SentencePiece models (sentencepiece_model.proto) without the library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::tokenizers {

// The values are those of the file format.
enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

// One entry of the vocabulary; its index is the id.
struct VocabularyPiece {
  std::string text;
  float score = 0.0F;
  PieceType type = PieceType::normal;
};

// Default values are those of the file format.
struct SentencePieceModel {
  std::vector<VocabularyPiece> pieces;
  bool is_bpe = false;
  bool blank_is_suffix = false;  // blanks belong to the word before them
  std::string required_characters;
  std::string character_map;  // normalisation table; empty: no normalisation
  bool adds_dummy_prefix = true, removes_extra_blanks = true, escapes_blanks = true;
};

// Never throws: malformed input gives the part that could be parsed.
SentencePieceModel parse_sentencepiece(std::string_view model);

// SentencePiece trusts the normalisation table inside a model; a corrupt one makes it read out of bounds. Returns false
// unless the model is a protocol buffer message whose normalisation tables are in bounds. The library checks the rest.
bool is_safe_model(std::string_view model);

// Number of pieces in a model; cheaper than parse_sentencepiece().
std::int64_t count_pieces(std::string_view model);

// How text is cut before SentencePiece encodes it.
//   separate:   line by line, with the piece <0x0A> for the line end and, if the model keeps blanks, a U+2581 in the
//               text spelled in bytes. Tokenizers trained here use this.
//   whole_text: not at all, as in the `sentencepiece` package.
enum class Lines { separate, whole_text };

// A serialised tokenizer is a plain model (separate) or a model with a marker at its end (whole_text): an extension
// field that SentencePiece ignores.
Lines lines_of(std::string_view serialised);
std::string_view without_marker(std::string_view serialised);

// The serialised tokenizer for a model file: Lines::separate if its settings show that it was trained here, else
// Lines::whole_text.
std::string serialised_from_file(std::string model);

}  // namespace headroom::tokenizers
