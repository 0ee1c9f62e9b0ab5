// Lines::together: the ids of the package `sentencepiece`, which encodes a text as a whole.
#include <algorithm>

#include "data/tokenizers/kinds.h"
#include "headroom/core/error.h"
#include "processor.h"
#include "sentencepiece_model.h"

namespace headroom::tokenizers {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Whether text[at] is a single blank between two letters.
bool parts_words(std::string_view text, std::size_t at) {
  return at > 0 && at + 1 < text.size() && text[at] == ' ' && is_letter(text[at - 1]) && is_letter(text[at + 1]);
}

// A piece with a blank after something else: it may reach from one word into the next.
bool joins_words(const Piece& piece) {
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

class Whole : public SentencePiece {
 public:
  Whole(std::string serialised, std::string_view origin) : SentencePiece(std::move(serialised), origin) {
    const std::vector<Piece> pieces = parse_sentencepiece(this->serialised()).pieces;
    if (id_of(kBlankSymbol) != kNone && std::none_of(pieces.begin(), pieces.end(), joins_words)) {
      const std::vector<std::int32_t> both = ids_of("a b"), first = ids_of("a");
      const auto gives_both = [&](std::string_view second) {
        std::vector<std::int32_t> ids = first, rest = ids_of(second);
        ids.insert(ids.end(), rest.begin(), rest.end());
        return ids == both;
      };
      // The second word's blank is one that SentencePiece puts there by itself, or the text's.
      cuts_ = gives_both("b") ? Cuts::at_blank : gives_both(" b") ? Cuts::before_blank : Cuts::none;
    }
    line_end_ = byte_piece('\n');
    const std::vector<std::int32_t> lines = ids_of("a\nb");
    if (std::count(lines.begin(), lines.end(), line_end_) != 1) {
      line_end_ = kNone;  // normalised to a blank
    }
  }

  std::int32_t line_end_id() const override { return line_end_; }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    while (text.size() > kLongestPiece) {
      const Cut cut = cut_near(text, kLongestPiece);
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

  std::vector<std::int32_t> ids_of(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode_piece(text, ids);
    return ids;
  }

  Cut cut_at(std::size_t blank) const { return {.end = blank, .next = blank + (cuts_ == Cuts::at_blank ? 1 : 0)}; }

  // The last cut up to `wanted`, or the first one after it.
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

std::unique_ptr<Tokenizer> make_whole(std::string serialised, std::string_view origin) {
  return std::make_unique<Whole>(std::move(serialised), origin);
}

}  // namespace headroom::tokenizers
