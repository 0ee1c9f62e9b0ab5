#include <sentencepiece_processor.h>

#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/core/utf8.h"
#include "tokenizers/kinds.h"
#include "tokenizers/sentencepiece_guard.h"

namespace headroom::tokenizers {
namespace {

// The time that SentencePiece takes for a line grows faster than the line.
constexpr std::size_t kLongestPiece = std::size_t{64} << 10;

class SentencePiece : public Tokenizer {
 public:
  SentencePiece(std::string model, std::string_view origin) : model_(std::move(model)) {
    if (!is_safe_model(model_) || !load() || processor_.GetPieceSize() < 1) {
      misuse("{}: is no SentencePiece model", origin);
    }
    line_end_ = byte_piece('\n');
    keeps_blanks_ = spelled_as_is("  a  b ");
    for (const char byte : kBlankSymbol) {
      blank_symbol_.push_back(byte_piece(byte));
    }
    escapes_ = keeps_blanks_ && std::find(blank_symbol_.begin(), blank_symbol_.end(), kNone) == blank_symbol_.end();
  }

  config::TokenizerKind kind() const override { return config::TokenizerKind::sentencepiece; }
  std::int64_t vocabulary_size() const override { return processor_.GetPieceSize(); }
  const std::string& serialised() const override { return model_; }
  std::int32_t begin_id() const override { return own_id(processor_.bos_id()); }
  std::int32_t end_id() const override { return own_id(processor_.eos_id()); }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      encode_line(text.substr(0, end), ids);
      if (end == std::string_view::npos) {
        return;
      }
      if (line_end_ != kNone) {
        ids.push_back(line_end_);
      }
      text.remove_prefix(end + 1);
    }
  }

  Unknown unknown(std::string_view text) const override {
    if (byte_piece('\0') != kNone) {
      return {};
    }
    Unknown unknown;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      for (const auto& piece : processor_.EncodeAsImmutableProto(text.substr(0, end)).pieces()) {
        if (processor_.IsUnknown(static_cast<int>(piece.id()))) {
          unknown.tokens += 1;
          unknown.bytes += std::ssize(piece.surface());
        }
      }
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return unknown;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    std::vector<int> line;
    for (const std::int32_t id : ids) {
      check_id(id, vocabulary_size());
      if (id == line_end_) {
        text += decode_line(line) + '\n';
        line.clear();
      } else {
        line.push_back(id);
      }
    }
    return text + decode_line(line);
  }

 private:
  static constexpr std::int32_t kNone = -1;

  std::int32_t byte_piece(char byte) const {
    const int id = processor_.PieceToId(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
    return id >= 0 && id < processor_.GetPieceSize() && processor_.IsByte(id) ? id : kNone;
  }

  // Most of what is wrong with a model comes back as a status; what its trie of pieces minds is thrown.
  bool load() {
    try {
      return processor_.LoadFromSerializedProto(model_).ok();
    } catch (const std::exception&) {
      return false;
    }
  }

  std::int32_t own_id(int id) const { return id >= 0 && id < processor_.GetPieceSize() ? id : kNone; }

  bool spelled_as_is(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode_piece(text, ids);
    return decode_line({ids.begin(), ids.end()}) == text;
  }

  void encode_line(std::string_view line, std::vector<std::int32_t>& ids) const {
    while (line.size() > kLongestPiece) {
      const std::size_t blank = line.rfind(' ', kLongestPiece);
      const std::size_t cut =
          blank == std::string_view::npos || blank == 0 ? character_boundary(line, kLongestPiece) : blank;
      encode_symbols(line.substr(0, cut), ids);
      line.remove_prefix(cut);
    }
    encode_symbols(line, ids);
  }

  // A U+2581 of the text itself would come back as a blank: it is spelled in bytes.
  void encode_symbols(std::string_view line, std::vector<std::int32_t>& ids) const {
    std::size_t at = std::string_view::npos;
    while (escapes_ && (at = line.find(kBlankSymbol)) != std::string_view::npos) {
      encode_piece(line.substr(0, at), ids);
      ids.insert(ids.end(), blank_symbol_.begin(), blank_symbol_.end());
      line.remove_prefix(at + kBlankSymbol.size());
    }
    encode_piece(line, ids);
  }

  void encode_piece(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (text.empty()) {
      return;
    }
    std::vector<int> pieces;
    if (const auto status = processor_.Encode(text, &pieces); !status.ok()) {
      fail("tokenizer: SentencePiece cannot encode: {}", status.ToString());
    }
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  std::string decode_line(const std::vector<int>& pieces) const {
    std::string text;
    if (const auto status = processor_.Decode(pieces, &text); !status.ok()) {
      fail("tokenizer: SentencePiece cannot decode: {}", status.ToString());
    }
    return text;
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::int32_t line_end_ = kNone;
  bool keeps_blanks_ = false, escapes_ = false;
  std::vector<std::int32_t> blank_symbol_;
};

}  // namespace

std::unique_ptr<Tokenizer> restore_sentencepiece(std::string serialised, std::string_view origin) {
  return std::make_unique<SentencePiece>(std::move(serialised), origin);
}

}  // namespace headroom::tokenizers
