// Lines::apart: tokenizers that are trained here, and models that were imported before files said how.
#include <algorithm>

#include "data/tokenizers/kinds.h"
#include "foundation/core/text/utf8.h"
#include "processor.h"

namespace headroom::tokenizers {
namespace {

class ByLine : public SentencePiece {
 public:
  ByLine(std::string model, std::string_view origin) : SentencePiece(std::move(model), origin) {
    line_end_ = byte_piece('\n');
    for (const char byte : kBlankSymbol) {
      blank_symbol_.push_back(byte_piece(byte));
    }
    escapes_ =
        spelled_as_is("  a  b ") && std::find(blank_symbol_.begin(), blank_symbol_.end(), kNone) == blank_symbol_.end();
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
      const std::size_t end = std::min(text.find('\n'), text.size());
      add_unknown(text.substr(0, end), unknown);
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
        text += decode_pieces(line) + '\n';
        line.clear();
      } else {
        line.push_back(id);
      }
    }
    return text + decode_pieces(line);
  }

 private:
  bool spelled_as_is(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode_piece(text, ids);
    return decode_pieces({ids.begin(), ids.end()}) == text;
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

  std::int32_t line_end_ = kNone;
  bool escapes_ = false;
  std::vector<std::int32_t> blank_symbol_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_by_line(std::string serialised, std::string_view origin) {
  return std::make_unique<ByLine>(std::move(serialised), origin);
}

}  // namespace headroom::tokenizers
