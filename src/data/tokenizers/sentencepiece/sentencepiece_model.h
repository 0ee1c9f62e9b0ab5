// What a serialised SentencePiece model says of itself (sentencepiece_model.proto), read without its library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::tokenizers {

// The numbers are the file's.
enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string text;
  float score = 0.0F;
  PieceType type = PieceType::normal;
};

// Defaults are the format's.
struct SentencePieceModel {
  std::vector<Piece> pieces;
  bool is_bpe = false;
  bool blank_is_suffix = false;  // blanks belong to the word in front of them
  std::string required_characters;
  std::string character_map;  // what normalises text; empty: nothing does
  bool adds_dummy_prefix = true, removes_extra_blanks = true, escapes_blanks = true;
};

// Of bytes that are no such model, what can be read of them.
SentencePieceModel parse_sentencepiece(std::string_view model);

// How text is cut before SentencePiece encodes it.
//   apart: line by line, with the piece <0x0A> for a line end and a U+2581 of the text spelled in bytes where the model
//   keeps blanks. Tokenizers that are trained here are such.
//   together: not at all, as the package `sentencepiece` does.
enum class Lines { apart, together };

// A serialised tokenizer is a model as it is (apart), or one with a mark at its end that SentencePiece passes over
// (together): a field of a number that is free for extensions.
Lines lines_of(std::string_view serialised);
std::string_view without_mark(std::string_view serialised);

// A model's file as a serialised tokenizer: one that was trained here, which its settings tell, is encoded as it was
// then, and any other as the package does.
std::string serialised_from_file(std::string model);

}  // namespace headroom::tokenizers
