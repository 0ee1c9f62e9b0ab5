// SentencePiece tokenizers: the calls into the library, and the two ways to cut a text beforehand (Lines).
#include <sentencepiece_processor.h>

#include <algorithm>
#include <iterator>

#include "data/tokenizers/kinds.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "sentencepiece_model.h"

namespace headroom::tokenizers {
namespace {

// In bytes. SentencePiece's run time grows faster than linearly with the text, so longer texts are cut where possible.
constexpr std::size_t kLongestText = std::size_t{64} << 10;

class SentencePiece : public Tokenizer {
 public:
  // Throws UserError naming `origin` for a malformed or unsafe model.
  SentencePiece(std::string serialised, std::string_view origin) : serialised_(std::move(serialised)) {
    if (!is_safe_model(serialised_) || !load() || processor_.GetPieceSize() < 1) {
      user_error("{}: not a SentencePiece model", origin);
    }
  }

  config::TokenizerKind kind() const override { return config::TokenizerKind::sentencepiece; }
  std::int64_t vocabulary_size() const override { return processor_.GetPieceSize(); }
  const std::string& serialised() const override { return serialised_; }
  std::int32_t begin_id() const override { return id_if_valid(processor_.bos_id()); }
  std::int32_t end_id() const override { return id_if_valid(processor_.eos_id()); }

  std::int32_t id_of(std::string_view token) const override {
    const std::int32_t id = id_if_valid(processor_.PieceToId(token));
    return id != kNone && processor_.IdToPiece(id) == token ? id : kNone;
  }

  std::int64_t decoded_bytes(std::string_view text, std::span<const std::int32_t> ids) const override {
    std::vector<std::int32_t> known;  // without unknown ids, which would decode to a placeholder
    std::ranges::copy_if(ids, std::back_inserter(known), [this](std::int32_t id) { return !processor_.IsUnknown(id); });
    const std::int64_t unknown_bytes = known.size() == ids.size() ? 0 : unknown(text).bytes;
    return std::ssize(decode(known)) + unknown_bytes;
  }

 protected:
  static constexpr std::int32_t kNone = -1;

  std::int32_t byte_piece(char byte) const {  // kNone if the model has no such piece
    const std::int32_t id = id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
    return id != kNone && processor_.IsByte(id) ? id : kNone;
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

  std::vector<std::int32_t> ids_of(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode_piece(text, ids);
    return ids;
  }

  std::string decode_pieces(const std::vector<int>& pieces) const {
    std::string text;
    if (const auto status = processor_.Decode(pieces, &text); !status.ok()) {
      fail("tokenizer: SentencePiece cannot decode: {}", status.ToString());
    }
    return text;
  }

  void add_unknown(std::string_view text, Unknown& unknown) const {
    const auto encoded = processor_.EncodeAsImmutableProto(text);  // must outlive its pieces, which are views
    for (const auto& piece : encoded.pieces()) {
      if (processor_.IsUnknown(static_cast<int>(piece.id()))) {
        unknown.tokens += 1;
        unknown.bytes += std::ssize(piece.surface());
      }
    }
  }

 private:
  // The library reports most errors as a status, but throws for some malformed vocabularies.
  bool load() {
    try {
      return processor_.LoadFromSerializedProto(serialised_).ok();
    } catch (const std::exception&) {
      return false;
    }
  }

  std::int32_t id_if_valid(int id) const { return id >= 0 && id < processor_.GetPieceSize() ? id : kNone; }

  std::string serialised_;
  sentencepiece::SentencePieceProcessor processor_;
};

// Lines::separate: for tokenizers trained by Headroom, and for models imported before files recorded the mode.
class LineByLine : public SentencePiece {
 public:
  LineByLine(std::string model, std::string_view origin) : SentencePiece(std::move(model), origin) {
    constexpr std::string_view kBlanks = "  a  b ";
    line_end_ = byte_piece('\n');
    for (const char byte : kBlankSymbol) {
      blank_symbol_.push_back(byte_piece(byte));
    }
    const std::vector<std::int32_t> blanks = ids_of(kBlanks);
    const bool keeps_blanks = decode_pieces({blanks.begin(), blanks.end()}) == kBlanks;
    escapes_ = keeps_blanks && std::ranges::find(blank_symbol_, kNone) == blank_symbol_.end();
  }

  std::int32_t line_end_id() const override { return line_end_; }

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
      add_unknown(take_line(text), unknown);
    }
    return unknown;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    std::vector<int> line;
    for (const std::int32_t id : ids) {
      check_id(id, vocabulary_size());
      if (id == line_end_) {
        text += decode_pieces(line) + '\n';
        line.clear();
      } else {
        line.push_back(id);
      }
    }
    return text + decode_pieces(line);
  }

 private:
  void encode_line(std::string_view line, std::vector<std::int32_t>& ids) const {
    while (line.size() > kLongestText) {
      const std::size_t blank = line.rfind(' ', kLongestText);
      const std::size_t cut =
          blank == std::string_view::npos || blank == 0 ? character_boundary(line, kLongestText) : blank;
      encode_symbols(line.substr(0, cut), ids);
      line.remove_prefix(cut);
    }
    encode_symbols(line, ids);
  }

  // Encodes a U+2581 in the text as bytes; otherwise it would decode to a space.
  void encode_symbols(std::string_view line, std::vector<std::int32_t>& ids) const {
    std::size_t at = std::string_view::npos;
    while (escapes_ && (at = line.find(kBlankSymbol)) != std::string_view::npos) {
      encode_piece(line.substr(0, at), ids);
      ids.insert(ids.end(), blank_symbol_.begin(), blank_symbol_.end());
      line.remove_prefix(at + kBlankSymbol.size());
    }
    encode_piece(line, ids);
  }

  std::int32_t line_end_ = kNone;
  bool escapes_ = false;
  std::vector<std::int32_t> blank_symbol_;
};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Returns whether text[at] is a single space between two letters.
bool parts_words(std::string_view text, std::size_t at) {
  return at > 0 && at + 1 < text.size() && text[at] == ' ' && is_letter(text[at - 1]) && is_letter(text[at + 1]);
}

// Returns whether a piece has a space after another character, so that it may span two words.
bool joins_words(const VocabularyPiece& piece) {
  const auto is_blank_at = [&](std::size_t at) {
    return piece.text[at] == ' ' || piece.text.compare(at, kBlankSymbol.size(), kBlankSymbol) == 0;
  };
  bool other = false;
  for (std::size_t at = 0; at < piece.text.size();) {
    const bool blank = is_blank_at(at);
    if (blank && other) {
      return true;
    }
    other = other || !blank;
    at += blank && piece.text[at] != ' ' ? kBlankSymbol.size() : 1;
  }
  return false;
}

// Lines::whole_text: gives the ids of the `sentencepiece` package.
class WholeText : public SentencePiece {
 public:
  WholeText(std::string serialised, std::string_view origin) : SentencePiece(std::move(serialised), origin) {
    const std::vector<VocabularyPiece> pieces = parse_sentencepiece(this->serialised()).pieces;
    if (id_of(kBlankSymbol) != kNone && std::ranges::none_of(pieces, joins_words)) {
      const std::vector<std::int32_t> both = ids_of("a b"), first = ids_of("a");
      const auto gives_both = [&](std::string_view second) {
        std::vector<std::int32_t> ids = first, rest = ids_of(second);
        ids.insert(ids.end(), rest.begin(), rest.end());
        return ids == both;
      };
      // SentencePiece prepends the space of the second word (at_blank), or the space is part of the text
      // (before_blank).
      cuts_ = gives_both("b") ? Cuts::at_blank : gives_both(" b") ? Cuts::before_blank : Cuts::none;
    }
    line_end_ = byte_piece('\n');
    const std::vector<std::int32_t> lines = ids_of("a\nb");
    if (std::ranges::count(lines, line_end_) != 1) {
      line_end_ = kNone;  // line ends are normalised to spaces
    }
  }

  std::int32_t line_end_id() const override { return line_end_; }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    while (text.size() > kLongestText) {
      const Cut cut = cut_near(text, kLongestText);
      if (cut.end == 0) {
        break;
      }
      encode_piece(text.substr(0, cut.end), ids);
      text.remove_prefix(cut.next);
    }
    encode_piece(text, ids);
  }

  Cut separable(std::string_view text) const override {
    if (cuts_ != Cuts::none) {
      for (std::size_t at = text.size(); at-- > 1;) {
        if (parts_words(text, at)) {
          return cut_at(at);
        }
      }
    }
    return {};
  }

  Unknown unknown(std::string_view text) const override {
    Unknown unknown;
    if (byte_piece('\0') == kNone) {
      add_unknown(text, unknown);
    }
    return unknown;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    for (const std::int32_t id : ids) {
      check_id(id, vocabulary_size());
    }
    return decode_pieces({ids.begin(), ids.end()});
  }

 private:
  enum class Cuts { none, at_blank, before_blank };

  Cut cut_at(std::size_t blank) const { return {.end = blank, .next = blank + (cuts_ == Cuts::at_blank ? 1 : 0)}; }

  // Returns the last cut up to `wanted`, else the first cut after it.
  Cut cut_near(std::string_view text, std::size_t wanted) const {
    const Cut before = separable(text.substr(0, wanted));
    for (std::size_t at = wanted; before.end == 0 && cuts_ != Cuts::none && at < text.size(); ++at) {
      if (parts_words(text, at)) {
        return cut_at(at);
      }
    }
    return before;
  }

  Cuts cuts_ = Cuts::none;
  std::int32_t line_end_ = kNone;
};

}  // namespace

std::unique_ptr<Tokenizer> restore_sentencepiece(std::string serialised, std::string_view origin) {
  if (!json_steps_of(serialised).empty()) {
    return restore_json_tokenizer(std::move(serialised), origin);
  }
  if (lines_of(serialised) == Lines::whole_text) {
    return std::make_unique<WholeText>(std::move(serialised), origin);
  }
  return std::make_unique<LineByLine>(std::move(serialised), origin);
}

}  // namespace headroom::tokenizers
