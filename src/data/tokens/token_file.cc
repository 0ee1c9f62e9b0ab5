#include "token_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "data/tokenizers/kinds.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/random.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr const char *kTokenFormat = "headroom.tokens.1", *kDocuments = "documents";

// Metadata value of unknown_bytes if the number is not known.
constexpr const char* kNotCounted = "not counted";

DType token_dtype(std::int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? DType::u16 : DType::i32;
}

class TokenChecksum {
 public:
  static constexpr const char* kKey = "checksum";  // metadata key

  void add(std::span<const std::byte> bytes) {
    sum_ = crc32_z(sum_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  }
  std::string text() const { return fmt::format("{:08x}", sum_); }

 private:
  uLong sum_ = crc32_z(0, nullptr, 0);
};

// Returns an integer from the metadata. Throws UserError unless it is from `low` to `high`.
std::int64_t number_at(const SafetensorsFile& file, const std::string& key, std::int64_t low, std::int64_t high) {
  const std::string& text = file.metadata_at(key);
  const std::optional<std::int64_t> value = whole_number(text);
  if (!value || *value < low || *value > high) {
    user_error("{}: metadata \"{}\" must be a number from {} to {}, got \"{}\"", file.path().string(), key, low, high,
               text);
  }
  return *value;
}

// Widens ids to 32 bits; returns whether all are below `limit`.
template <class Stored>
bool widen(const std::byte* from, std::int64_t count, std::uint32_t limit, std::int32_t* out) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Stored id;  // copied with memcpy: the bytes may be unaligned
    std::memcpy(&id, from + static_cast<std::size_t>(i) * sizeof id, sizeof id);
    largest = std::max(largest, static_cast<std::uint32_t>(id));
    out[i] = static_cast<std::int32_t>(id);
  }
  return count == 0 || largest < limit;
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

// Returns the stored documents. Throws UserError if they are not ascending parts of `size` tokens.
std::vector<Range> read_documents(const SafetensorsFile& file, std::int64_t size) {
  if (!file.contains(kDocuments)) {
    return {{0, size}};
  }
  const StoredTensor& stored = file.at(kDocuments);
  std::vector<std::int64_t> starts(static_cast<std::size_t>(stored.dtype == DType::i64 ? stored.numel() : 0));
  std::memcpy(starts.data(), stored.data.data(), starts.size() * sizeof(std::int64_t));
  if (starts.empty() || starts.front() != 0 || starts.back() >= size ||
      std::ranges::adjacent_find(starts, std::greater_equal()) != starts.end()) {
    user_error("{}: tensor \"{}\" must be I64 with ascending positions from 0 to {}", file.path().string(), kDocuments,
               size - 1);
  }
  return documents_between(starts, size);
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path, std::string name, std::vector<Range> parts)
    : file_(std::make_shared<const SafetensorsFile>(path)), name_(name.empty() ? path.string() : std::move(name)) {
  const auto format = file_->metadata().find("format");
  if (format == file_->metadata().end() || format->second != kTokenFormat) {
    user_error("{}: not a token file: its format is \"{}\", expected \"{}\"", path.string(),
               format == file_->metadata().end() ? "" : format->second, kTokenFormat);
  }
  tokenizer_name_ = file_->metadata_at("tokenizer_name");
  file_->metadata_at("tokenizer_kind");
  file_->at("tokenizer");
  vocabulary_size_ = number_at(*file_, "vocabulary_size", 1, INT32_MAX);
  constexpr std::int64_t kMost = std::int64_t{1} << 48;  // so that the sum over many files does not overflow
  text_bytes_ = number_at(*file_, "text_bytes", 1, kMost);
  const auto unknown = file_->metadata().find("unknown_bytes");
  if (file_->metadata().contains("decoded_bytes")) {
    unknown_ = {.tokens = number_at(*file_, "unknown_tokens", 0, kMost),
                .bytes = number_at(*file_, "unknown_bytes", 0, text_bytes_)};
    decoded_bytes_ = number_at(*file_, "decoded_bytes", 1, kMost);
  } else if (unknown == file_->metadata().end() || unknown->second != kNotCounted) {
    // Earlier versions did not count the bytes that normalisation removes.
    const std::string& kind = file_->metadata_at("tokenizer_kind");
    if (kind == config::name_of(config::TokenizerKind::bytes) || kind == config::name_of(config::TokenizerKind::bpe)) {
      unknown_ = tokenizers::Unknown();
      if (unknown != file_->metadata().end()) {
        unknown_ = {.tokens = number_at(*file_, "unknown_tokens", 0, kMost),
                    .bytes = number_at(*file_, "unknown_bytes", 0, text_bytes_)};
      }
      decoded_bytes_ = text_bytes_;
    }
  }
  tokens_ = &file_->at("tokens");
  if ((tokens_->dtype != DType::u16 && tokens_->dtype != DType::i32) || tokens_->shape.size() != 1) {
    user_error("{}: tensor \"tokens\" must be U16 or I32 with one dimension", path.string());
  }
  size_ = tokens_->numel();
  if (size_ == 0) {
    user_error("{}: holds no tokens", path.string());
  }
  documents_ = read_documents(*file_, size_);
  set_parts(std::move(parts));
}

// Uses only these parts of the stored tokens. Documents are then what the parts have of each.
void TokenFile::set_parts(std::vector<Range> parts) {
  std::vector<std::int64_t> starts;
  std::int64_t size = 0;
  for (const Range& part : parts) {
    auto document = std::ranges::upper_bound(documents_, part.begin, {}, &Range::end);
    for (std::int64_t at = part.begin; at < part.end; at = document->end, ++document) {
      starts.push_back(size + at - part.begin);
    }
    size += part.size();
    ends_.push_back(size);
  }
  if (!parts.empty()) {
    size_ = size;
    documents_ = documents_between(starts, size);
    parts_ = std::move(parts);
  }
  if (documents_.size() == 1) {
    documents_.clear();
  }
}

std::size_t TokenFile::part_at(std::int64_t token) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(ends_, token) - ends_.begin());
}

TokenFile TokenFile::shuffled(std::uint64_t seed) const {
  std::vector<Range> order;  // in stored tokens; each document lies within one part
  for (const Range& document : documents_) {
    const std::size_t part = parts_.empty() ? 0 : part_at(document.begin);
    const std::int64_t moved = parts_.empty() ? 0 : parts_[part].end - ends_[part];
    order.push_back({document.begin + moved, document.end + moved});
  }
  Random random(mix(seed, "documents"));
  for (std::size_t left = order.size(); left > 2; --left) {
    std::swap(order[random.below(left - 1)], order[left - 2]);
  }
  TokenFile other = *this;
  other.documents_.clear();
  other.ends_.clear();
  std::int64_t size = 0;
  for (const Range& document : order) {
    other.documents_.push_back({size, size + document.size()});
    other.ends_.push_back(size += document.size());
  }
  other.parts_ = std::move(order);
  return other;
}

void TokenFile::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  if (begin < 0 || count < 0 || begin > size_ || count > size_ - begin) {
    fail("{}: cannot read {} tokens from position {}, it holds {}", name_, count, begin, size_);
  }
  if (parts_.empty()) {
    copy_stored(begin, count, out);
    return;
  }
  for (std::size_t part = part_at(begin); count > 0; ++part) {
    const std::int64_t some = std::min(count, ends_[part] - begin);
    copy_stored(parts_[part].end - (ends_[part] - begin), some, out);
    begin += some;
    count -= some;
    out += some;
  }
}

void TokenFile::copy_stored(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  const std::byte* from = tokens_->data.data() + static_cast<std::size_t>(begin) * size_of(tokens_->dtype);
  const auto limit = static_cast<std::uint32_t>(vocabulary_size_);
  const bool valid = tokens_->dtype == DType::u16 ? widen<std::uint16_t>(from, count, limit, out)
                                                  : widen<std::uint32_t>(from, count, limit, out);
  if (!valid) {
    const std::string path = file_->path().string();
    user_error(
        "{}: is damaged: an id among tokens {} to {} is not below its vocabulary_size {}{}", path, begin,
        begin + count - 1, vocabulary_size_,
        name_ == path ? "" : fmt::format("; it was made from {}: delete it, and it will be created again", name_));
  }
}

void TokenFile::verify() const {
  const auto was = file_->metadata().find(TokenChecksum::kKey);
  if (was == file_->metadata().end()) {
    return;
  }
  TokenChecksum is;
  is.add(tokens_->data);
  if (is.text() != was->second) {
    user_error("{}: is damaged: the checksum of its tokens is {}, expected {}", file_->path().string(), is.text(),
               printable(was->second));
  }
}

std::unique_ptr<tokenizers::Tokenizer> TokenFile::tokenizer() const {
  std::unique_ptr<tokenizers::Tokenizer> tokenizer = tokenizers::read_tokenizer(*file_);
  if (tokenizer->vocabulary_size() != vocabulary_size_) {
    user_error("{}: its tokenizer {} has {} ids, but its vocabulary_size is {}", name_, tokenizer->name(),
               tokenizer->vocabulary_size(), vocabulary_size_);
  }
  return tokenizer;
}

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
