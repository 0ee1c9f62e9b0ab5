// Encodes text to token files, and copies parts of them.
#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "data/tokenizers/kinds.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "token_file.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

DType token_dtype(std::int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? DType::u16 : DType::i32;
}

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

  // The next tokens begin a document.
  void start_document() { documents_.push_back(written_); }

  // Adds the counts of a text whose tokens are appended. nullopt: not known.
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
      user_error("{}: not written: the text has no tokens", path_.string());
    }
    const auto bytes = std::as_bytes(std::span(tokenizer_.serialised()));
    stream_.add("tokenizer", DType::u8, {std::ssize(bytes)}, {bytes.begin(), bytes.end()});
    if (documents_.size() > 1) {
      const auto starts = std::as_bytes(std::span(documents_));
      stream_.add(kDocuments, DType::i64, {std::ssize(documents_)}, {starts.begin(), starts.end()});
    }
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
  std::vector<std::int64_t> documents_;
  std::int64_t written_ = 0, decoded_bytes_ = 0;
  std::optional<tokenizers::Unknown> unknown_ = tokenizers::Unknown();  // nullopt: a joined file lacks its counts
};

// Reads a text in blocks that encode independently. Blocks end at the starts of documents and at the ends of the text's
// own blocks; the part of a block after its last separable position moves to the next block. If that part exceeds
// kLongestRest bytes, for example inside a very long word, the text is cut anyway.
class SeparableBlocks {
 public:
  SeparableBlocks(tokenizers::TextSource& text, const tokenizers::Tokenizer& tokenizer)
      : text_(text), blocks_(text, "encode"), tokenizer_(tokenizer) {}

  // Sets `starts` if a document begins with the block.
  bool next(std::string& out, bool& starts) {
    constexpr std::size_t kLongestRest = std::size_t{4} << 20;
    out = std::exchange(rest_, {});
    starts = false;
    for (bool first = true; more(); first = false) {
      starts = starts || (first && starts_document());
      const std::size_t end = next_start();
      out.append(block_, at_, end - at_);
      text_bytes_ += static_cast<std::int64_t>(end - at_);
      at_ = end;
      if (at_ < block_.size() && !cuts_here(out)) {
        continue;
      }
      tokenizers::Cut cut = tokenizer_.separable(out);
      if (cut.end == 0 && out.size() > kLongestRest) {
        cut = {.end = out.size(), .next = out.size()};
      }
      if (cut.end > 0) {
        rest_ = out.substr(cut.next);
        cut_bytes_ += static_cast<std::int64_t>(cut.next - cut.end);
        out.resize(cut.end);
        return true;
      }
    }
    return !out.empty();
  }
  std::int64_t text_bytes() const { return text_bytes_; }  // bytes of text read so far
  std::int64_t cut_bytes() const { return cut_bytes_; }    // bytes dropped at cuts, which the tokens still represent

 private:
  bool more() {
    if (at_ == block_.size()) {
      at_ = 0;
      block_.clear();
      return blocks_.next(block_);
    }
    return true;
  }
  bool starts_document() const { return std::ranges::binary_search(text_.document_starts(), at_); }
  // Returns where the next document after at_ begins, or the end of the block.
  std::size_t next_start() const {
    const auto after = std::ranges::upper_bound(text_.document_starts(), at_);
    return after == text_.document_starts().end() ? block_.size() : *after;
  }
  // Tokenizers without words or lines can be cut anywhere; the others after a line end.
  bool cuts_here(const std::string& text) const {
    using enum config::TokenizerKind;
    return text.ends_with('\n') || tokenizer_.kind() == bytes || tokenizer_.kind() == bpe;
  }

  tokenizers::TextSource& text_;
  tokenizers::BlockReader blocks_;
  const tokenizers::Tokenizer& tokenizer_;
  std::string block_, rest_;
  std::size_t at_ = 0;  // bytes of block_ read
  std::int64_t text_bytes_ = 0, cut_bytes_ = 0;
};

struct EncodedBlock {
  std::string text;
  bool starts_document = false;
  std::vector<std::int32_t> ids;
  tokenizers::Unknown unknown;
  std::int64_t decoded_bytes = 0;
};

// Encodes each block on one thread, so that the result does not depend on the number of threads.
void encode_all(const tokenizers::Tokenizer& tokenizer, std::span<EncodedBlock> encoded, std::size_t n_threads) {
  in_parallel(encoded.size(), n_threads, [&](std::size_t i) {
    encoded[i].ids.clear();
    tokenizer.encode(encoded[i].text, encoded[i].ids);
    encoded[i].unknown = tokenizer.unknown(encoded[i].text);
    encoded[i].decoded_bytes = tokenizer.decoded_bytes(encoded[i].text, encoded[i].ids);
  });
}

// Appends all tokens that the file uses, document by document.
void append_all(const TokenFile& file, TokenWriter& writer) {
  constexpr std::int64_t kTokensAtOnce = std::int64_t{1} << 20;
  std::vector<std::int32_t> ids;
  const std::vector<Range> whole = {{0, file.size()}};
  for (const Range& document : file.documents().empty() ? whole : file.documents()) {
    writer.start_document();
    for (std::int64_t at = document.begin; at < document.end; at += std::ssize(ids)) {
      ids.resize(static_cast<std::size_t>(std::min(kTokensAtOnce, document.end - at)));
      file.copy(at, std::ssize(ids), ids.data());
      writer.append(ids);
    }
  }
}

}  // namespace

void write_token_file(tokenizers::TextSource& text, const tokenizers::Tokenizer& tokenizer, const fs::path& path,
                      int threads) {
  const auto n_threads = static_cast<std::size_t>(threads > 0 ? threads : physical_cores());
  TokenWriter writer(tokenizer, path);
  SeparableBlocks blocks(text, tokenizer);
  std::vector<EncodedBlock> encoded(n_threads * kBlocksPerThread);
  for (std::size_t filled = encoded.size(); filled == encoded.size();) {
    filled = 0;
    while (filled < encoded.size() && blocks.next(encoded[filled].text, encoded[filled].starts_document)) {
      ++filled;
    }
    const std::span<EncodedBlock> wave = std::span(encoded).first(filled);
    encode_all(tokenizer, wave, n_threads);
    for (const EncodedBlock& block : wave) {
      if (block.starts_document) {
        writer.start_document();
      }
      writer.append(block.ids);
      writer.add(block.unknown, block.decoded_bytes);
    }
  }
  writer.add(tokenizers::Unknown(), blocks.cut_bytes());
  writer.commit(blocks.text_bytes());
}

void write_part_of_token_file(const TokenFile& file, std::optional<std::int64_t> text_bytes, const fs::path& path) {
  const std::unique_ptr<tokenizers::Tokenizer> tokenizer = file.tokenizer();
  TokenWriter writer(*tokenizer, path);
  append_all(file, writer);
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
    append_all(file, writer);
    text_bytes += file.text_bytes();
    writer.add(file.unknown(), file.decoded_bytes());
  }
  writer.commit(text_bytes);
}

}  // namespace headroom::data
