#include "sentencepiece_model.h"

#include <cstring>

#include "data/tokenizers/kinds.h"
#include "data/tokenizers/message.h"

namespace headroom::tokenizers {
namespace {

constexpr std::uint64_t kMarkField = 7210;  // the format leaves fields from 200 on to others
constexpr std::string_view kMark = "headroom: lines together";

Piece parse_piece(std::string_view bytes) {
  Piece piece;
  for (Message fields(bytes); !fields.at_end() && fields.next();) {
    if (fields.is_bytes(1)) {
      piece.text = fields.bytes();
    } else if (fields.is_fixed32(2)) {
      std::memcpy(&piece.score, fields.bytes().data(), sizeof piece.score);
    } else if (fields.is_varint(3)) {
      piece.type = static_cast<PieceType>(fields.varint() & 0xff);
    }
  }
  return piece;
}

void parse_training(std::string_view bytes, SentencePieceModel& model) {
  constexpr std::uint64_t kBpe = 2;
  for (Message fields(bytes); !fields.at_end() && fields.next();) {
    if (fields.is_varint(3)) {
      model.is_bpe = fields.varint() == kBpe;
    } else if (fields.is_varint(24)) {
      model.blank_is_suffix = fields.varint() != 0;
    } else if (fields.is_bytes(36)) {
      model.required_characters = fields.bytes();
    }
  }
}

void parse_normalizer(std::string_view bytes, SentencePieceModel& model) {
  for (Message fields(bytes); !fields.at_end() && fields.next();) {
    if (fields.is_bytes(2)) {
      model.character_map = fields.bytes();
    } else if (fields.is_varint(3)) {
      model.adds_dummy_prefix = fields.varint() != 0;
    } else if (fields.is_varint(4)) {
      model.removes_extra_blanks = fields.varint() != 0;
    } else if (fields.is_varint(5)) {
      model.escapes_blanks = fields.varint() != 0;
    }
  }
}

const std::string& mark() {
  static const std::string kSerialised = bytes_field(kMarkField, kMark);
  return kSerialised;
}

}  // namespace

SentencePieceModel parse_sentencepiece(std::string_view model) {
  SentencePieceModel parsed;
  for (Message fields(model); !fields.at_end() && fields.next();) {
    if (fields.is_bytes(1)) {
      parsed.pieces.push_back(parse_piece(fields.bytes()));
    } else if (fields.is_bytes(2)) {
      parse_training(fields.bytes(), parsed);
    } else if (fields.is_bytes(3)) {
      parse_normalizer(fields.bytes(), parsed);
    }
  }
  return parsed;
}

Lines lines_of(std::string_view serialised) {
  return serialised.ends_with(mark()) ? Lines::together : Lines::apart;
}

std::string_view without_mark(std::string_view serialised) {
  return lines_of(serialised) == Lines::together ? serialised.substr(0, serialised.size() - mark().size()) : serialised;
}

std::string serialised_from_file(std::string model) {
  const bool trained_here = parse_sentencepiece(model).required_characters == kBlankSymbol;
  return trained_here || lines_of(model) == Lines::together ? std::move(model) : std::move(model) + mark();
}

}  // namespace headroom::tokenizers
