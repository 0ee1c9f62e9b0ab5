#include <map>
#include <optional>
#include <span>
#include <utility>

#include "data/tokenizers/kinds.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "token_file.h"
#include "token_format.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlocksPerThread = 8;

class TokenWriter {
 public:
  TokenWriter(const tokenizers::Tokenizer& tokenizer, const fs::path& path)
      : tokenizer_(tokenizer),
        path_(path),
        dtype_(token_dtype(tokenizer.vocabulary_size())),
        stream_(path, "tokens", dtype_) {}

  void append(std::span<const std::int32_t> ids) {
    if (dtype_ == DType::u16) {
      narrow_.assign(ids.begin(), ids.end());
    }
    const auto bytes = dtype_ == DType::u16 ? std::as_bytes(std::span(narrow_)) : std::as_bytes(ids);
    stream_.append(bytes);
    checksum_.add(bytes);
    written_ += std::ssize(ids);
  }

  // Of a text whose tokens are appended. Nothing: not known.
  void add(const std::optional<tokenizers::Unknown>& unknown, std::int64_t decoded_bytes) {
    if (unknown && unknown_) {
      unknown_->tokens += unknown->tokens;
      unknown_->bytes += unknown->bytes;
      decoded_bytes_ += decoded_bytes;
    } else {
      unknown_.reset();
    }
  }

  void commit(std::int64_t text_bytes) {
    if (written_ == 0) {
      user_error("{}: not written: the text gives no token", path_.string());
    }
    const auto bytes = std::as_bytes(std::span(tokenizer_.serialised()));
    stream_.add("tokenizer", DType::u8, {std::ssize(bytes)}, {bytes.begin(), bytes.end()});
    std::map<std::string, std::string> metadata = {{"format", kTokenFormat},
                                                   {"tokenizer_kind", std::string(config::name_of(tokenizer_.kind()))},
                                                   {"tokenizer_name", tokenizer_.name()},
                                                   {"vocabulary_size", std::to_string(tokenizer_.vocabulary_size())},
                                                   {"text_bytes", std::to_string(text_bytes)},
                                                   {TokenChecksum::kKey, checksum_.text()}};
    if (unknown_ && decoded_bytes_ > 0) {
      metadata["unknown_tokens"] = std::to_string(unknown_->tokens);
      metadata["unknown_bytes"] = std::to_string(unknown_->bytes);
      metadata["decoded_bytes"] = std::to_string(decoded_bytes_);
    } else {
      metadata["unknown_bytes"] = kNotCounted;
    }
    stream_.commit(metadata);
  }

 private:
  const tokenizers::Tokenizer& tokenizer_;
  fs::path path_;
  DType dtype_;
  SafetensorsStream stream_;
  TokenChecksum checksum_;
  std::vector<std::uint16_t> narrow_;
  std::int64_t written_ = 0, decoded_bytes_ = 0;
  std::optional<tokenizers::Unknown> unknown_ = tokenizers::Unknown();  // nothing: not known of a file that was joined
};

// The blocks of a text with what the tokenizer cannot encode apart moved to the next one. Where that would become too
// long, as with a text of one word, it is cut all the same.
class StretchReader {
 public:
  StretchReader(tokenizers::TextSource& text, const tokenizers::Tokenizer& tokenizer)
      : blocks_(text, "encode"), tokenizer_(tokenizer) {}

  bool next(std::string& stretch) {
    constexpr std::size_t kLongestRest = std::size_t{4} << 20;
    stretch = std::exchange(rest_, {});
    for (std::string block; blocks_.next(block);) {
      stretch += block;
      text_bytes_ += std::ssize(block);
      tokenizers::Cut cut = tokenizer_.separable(stretch);
      if (cut.end == 0 && stretch.size() > kLongestRest) {
        cut = {.end = stretch.size(), .next = stretch.size()};
      }
      if (cut.end > 0) {
        rest_ = stretch.substr(cut.next);
        cut_bytes_ += static_cast<std::int64_t>(cut.next - cut.end);
        stretch.resize(cut.end);
        return true;
      }
    }
    return !stretch.empty();
  }
  std::int64_t text_bytes() const { return text_bytes_; }  // read so far
  std::int64_t cut_bytes() const { return cut_bytes_; }    // between stretches, which the tokens stand for all the same

 private:
  tokenizers::BlockReader blocks_;
  const tokenizers::Tokenizer& tokenizer_;
  std::string rest_;
  std::int64_t text_bytes_ = 0, cut_bytes_ = 0;
};

struct Piece {
  std::string text;
  std::vector<std::int32_t> ids;
  tokenizers::Unknown unknown;
  std::int64_t decoded_bytes = 0;
};

// Encodes every piece, each wholly by one thread, so that the threads' number shows nowhere.
void encode_all(const tokenizers::Tokenizer& tokenizer, std::span<Piece> pieces, std::size_t n_threads) {
  in_parallel(pieces.size(), n_threads, [&](std::size_t i) {
    pieces[i].ids.clear();
    tokenizer.encode(pieces[i].text, pieces[i].ids);
    pieces[i].unknown = tokenizer.unknown(pieces[i].text);
    pieces[i].decoded_bytes = tokenizer.decoded_bytes(pieces[i].text, pieces[i].ids);
  });
}

// The tokens of the file from `begin` on.
void append_rest(const TokenFile& file, std::int64_t begin, TokenWriter& writer) {
  constexpr std::int64_t kTokensAtOnce = std::int64_t{1} << 20;
  std::vector<std::int32_t> ids;
  for (std::int64_t at = begin; at < file.size(); at += std::ssize(ids)) {
    ids.resize(static_cast<std::size_t>(std::min(kTokensAtOnce, file.size() - at)));
    file.copy(at, std::ssize(ids), ids.data());
    writer.append(ids);
  }
}

}  // namespace

void write_token_file(tokenizers::TextSource& text, const tokenizers::Tokenizer& tokenizer, const fs::path& path,
                      int threads) {
  const auto n_threads = static_cast<std::size_t>(threads > 0 ? threads : physical_cores());
  TokenWriter writer(tokenizer, path);
  StretchReader stretches(text, tokenizer);
  std::vector<Piece> pieces(n_threads * kBlocksPerThread);
  for (std::size_t filled = pieces.size(); filled == pieces.size();) {
    filled = 0;
    while (filled < pieces.size() && stretches.next(pieces[filled].text)) {
      ++filled;
    }
    const std::span<Piece> wave = std::span(pieces).first(filled);
    encode_all(tokenizer, wave, n_threads);
    for (const Piece& piece : wave) {
      writer.append(piece.ids);
      writer.add(piece.unknown, piece.decoded_bytes);
    }
  }
  writer.add(tokenizers::Unknown(), stretches.cut_bytes());
  writer.commit(stretches.text_bytes());
}

void write_rest_of_token_file(const TokenFile& file, std::int64_t begin, std::optional<std::int64_t> text_bytes,
                              const fs::path& path) {
  const std::unique_ptr<tokenizers::Tokenizer> tokenizer = file.tokenizer();
  TokenWriter writer(*tokenizer, path);
  append_rest(file, begin, writer);
  writer.add(text_bytes ? std::optional(tokenizers::Unknown()) : std::nullopt, text_bytes.value_or(0));
  writer.commit(text_bytes.value_or(1));
}

void join_token_files(const std::vector<fs::path>& files, const fs::path& path) {
  const TokenFile first(files.at(0));
  const std::unique_ptr<tokenizers::Tokenizer> tokenizer = first.tokenizer();
  TokenWriter writer(*tokenizer, path);
  std::int64_t text_bytes = 0;
  for (const fs::path& name : files) {
    const TokenFile file(name);
    file.verify();
    if (file.tokenizer_name() != first.tokenizer_name()) {
      user_error("{}: was made with tokenizer {}, but {} with {}", file.path().string(), file.tokenizer_name(),
                 first.path().string(), first.tokenizer_name());
    }
    append_rest(file, 0, writer);
    text_bytes += file.text_bytes();
    writer.add(file.unknown(), file.decoded_bytes());
  }
  writer.commit(text_bytes);
}

}  // namespace headroom::data
