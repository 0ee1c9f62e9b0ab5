// Reads serialised SentencePiece models (sentencepiece_model.proto) without the SentencePiece library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::tokenizers {

// Values as in the file format.
enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

// One entry of the vocabulary. Its index is the token id.
struct VocabularyPiece {
  std::string text;
  float score = 0.0F;
  PieceType type = PieceType::normal;
};

// Defaults as in the file format.
struct SentencePieceModel {
  std::vector<VocabularyPiece> pieces;
  bool is_bpe = false;
  bool blank_is_suffix = false;  // a space belongs to the word before it
  std::string required_characters;
  std::string character_map;  // normalisation table; empty: no normalisation
  bool adds_dummy_prefix = true, removes_extra_blanks = true, escapes_blanks = true;
};

// Never throws: for malformed input, returns the part that could be parsed.
SentencePieceModel parse_sentencepiece(std::string_view model);

// Returns a model that parse_sentencepiece() parses. `required_characters` is left out.
std::string serialise(const SentencePieceModel& model);

// Returns false unless the model is a protocol buffer message whose normalisation tables are in bounds. SentencePiece
// trusts these tables, so a corrupt one makes it read out of bounds; it checks the rest of the model itself.
bool is_safe_model(std::string_view model);

// Returns the number of pieces in a model. Cheaper than parse_sentencepiece().
std::int64_t count_pieces(std::string_view model);

// How a text is cut before SentencePiece encodes it.
//   separate:   line by line. Line ends become the piece <0x0A>; if the model keeps white space, a U+2581 in the text
//               is encoded as bytes. Tokenizers trained by Headroom use this mode.
//   whole_text: not at all, as in the `sentencepiece` package.
enum class Lines { separate, whole_text };

// A serialised tokenizer is a plain model (separate), or a model followed by a marker (whole_text), in front of which
// may be the steps of a tokenizer.json (json_steps.h). Both are extension fields that SentencePiece ignores.
Lines lines_of(std::string_view serialised);
std::string_view without_marker(std::string_view serialised);
std::string with_json_steps(std::string_view model, std::string_view steps);
std::string_view json_steps_of(std::string_view serialised);  // empty: none

// Returns a control piece, which encoding never produces, for an id that the model has and the tokenizer lacks.
VocabularyPiece spare_piece(std::int64_t id);
// Returns the serialised tokenizer, with spare pieces appended until it has at least `size` pieces.
std::string with_spare_pieces(std::string_view serialised, std::int64_t size);

// Returns the serialised tokenizer for a model file: Lines::separate if its settings show that Headroom trained it,
// else Lines::whole_text.
std::string serialised_from_file(std::string model);

}  // namespace headroom::tokenizers
