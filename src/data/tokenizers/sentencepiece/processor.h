// SentencePiece's own calls, and what both ways of cutting text before them share.
#pragma once

#include <sentencepiece_processor.h>

#include <string>
#include <string_view>
#include <vector>

#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tokenizers {

// The time that SentencePiece takes for a text grows faster than the text: longer ones are cut where that can be done.
inline constexpr std::size_t kLongestPiece = std::size_t{64} << 10;

class SentencePiece : public Tokenizer {
 public:
  // Throws UserError naming `origin` for what is no model, or one that could do harm.
  SentencePiece(std::string serialised, std::string_view origin);

  config::TokenizerKind kind() const override { return config::TokenizerKind::sentencepiece; }
  std::int64_t vocabulary_size() const override { return processor_.GetPieceSize(); }
  const std::string& serialised() const override { return serialised_; }
  std::int32_t begin_id() const override { return own_id(processor_.bos_id()); }
  std::int32_t end_id() const override { return own_id(processor_.eos_id()); }
  std::int32_t id_of(std::string_view token) const override;
  std::int64_t decoded_bytes(std::string_view text, std::span<const std::int32_t> ids) const override;

 protected:
  static constexpr std::int32_t kNone = -1;

  std::int32_t byte_piece(char byte) const;  // kNone: the model has none for it
  void encode_piece(std::string_view text, std::vector<std::int32_t>& ids) const;
  std::string decode_pieces(const std::vector<int>& pieces) const;
  void add_unknown(std::string_view text, Unknown& unknown) const;

 private:
  bool load();
  std::int32_t own_id(int id) const { return id >= 0 && id < processor_.GetPieceSize() ? id : kNone; }

  std::string serialised_;
  sentencepiece::SentencePieceProcessor processor_;
};

std::unique_ptr<Tokenizer> make_by_line(std::string serialised, std::string_view origin);
std::unique_ptr<Tokenizer> make_whole(std::string serialised, std::string_view origin);

}  // namespace headroom::tokenizers
