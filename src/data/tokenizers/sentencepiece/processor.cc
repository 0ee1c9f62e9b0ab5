#include "processor.h"

#include <algorithm>
#include <iterator>

#include "data/tokenizers/kinds.h"
#include "headroom/core/error.h"
#include "sentencepiece_guard.h"
#include "sentencepiece_model.h"

namespace headroom::tokenizers {

SentencePiece::SentencePiece(std::string serialised, std::string_view origin) : serialised_(std::move(serialised)) {
  if (!is_safe_model(serialised_) || !load() || processor_.GetPieceSize() < 1) {
    user_error("{}: is no SentencePiece model", origin);
  }
}

// Most of what is wrong with a model comes back as a status; what its trie of pieces minds is thrown.
bool SentencePiece::load() {
  try {
    return processor_.LoadFromSerializedProto(serialised_).ok();
  } catch (const std::exception&) {
    return false;
  }
}

std::int32_t SentencePiece::id_of(std::string_view token) const {
  const int id = processor_.PieceToId(token);
  return id >= 0 && id < processor_.GetPieceSize() && processor_.IdToPiece(id) == token ? id : kNone;
}

std::int64_t SentencePiece::decoded_bytes(std::string_view text, std::span<const std::int32_t> ids) const {
  std::vector<std::int32_t> known;  // an unknown character is decoded to a sign of its own
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(known),
               [this](std::int32_t id) { return !processor_.IsUnknown(id); });
  const std::int64_t unknown_bytes = known.size() == ids.size() ? 0 : unknown(text).bytes;
  return std::ssize(decode(known)) + unknown_bytes;
}

std::int32_t SentencePiece::byte_piece(char byte) const {
  const std::int32_t id = id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
  return id != kNone && processor_.IsByte(id) ? id : kNone;
}

void SentencePiece::encode_piece(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (text.empty()) {
    return;
  }
  std::vector<int> pieces;
  if (const auto status = processor_.Encode(text, &pieces); !status.ok()) {
    fail("tokenizer: SentencePiece cannot encode: {}", status.ToString());
  }
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

std::string SentencePiece::decode_pieces(const std::vector<int>& pieces) const {
  std::string text;
  if (const auto status = processor_.Decode(pieces, &text); !status.ok()) {
    fail("tokenizer: SentencePiece cannot decode: {}", status.ToString());
  }
  return text;
}

void SentencePiece::add_unknown(std::string_view text, Unknown& unknown) const {
  const auto encoded = processor_.EncodeAsImmutableProto(text);  // pieces view what it holds
  for (const auto& piece : encoded.pieces()) {
    if (processor_.IsUnknown(static_cast<int>(piece.id()))) {
      unknown.tokens += 1;
      unknown.bytes += std::ssize(piece.surface());
    }
  }
}

std::unique_ptr<Tokenizer> restore_sentencepiece(std::string serialised, std::string_view origin) {
  return lines_of(serialised) == Lines::together ? make_whole(std::move(serialised), origin)
                                                 : make_by_line(std::move(serialised), origin);
}

}  // namespace headroom::tokenizers
