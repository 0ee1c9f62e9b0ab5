#include "token_file.h"

#include <algorithm>
#include <cstring>

#include "foundation/core/text/format.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "token_format.h"

namespace headroom::data {
namespace {

// A whole number from `low` to `high` in the metadata.
std::int64_t number_at(const SafetensorsFile& file, const std::string& key, std::int64_t low, std::int64_t high) {
  const std::string& text = file.metadata_at(key);
  const std::optional<std::int64_t> value = whole_number(text);
  if (!value || *value < low || *value > high) {
    user_error("{}: metadata \"{}\" must be a number from {} to {}, got \"{}\"", file.path().string(), key, low, high,
               text);
  }
  return *value;
}

// Widens to 32 bits; true when every id is below `limit`.
template <class Stored>
bool widen(const std::byte* from, std::int64_t count, std::uint32_t limit, std::int32_t* out) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Stored id;  // the bytes need not be aligned
    std::memcpy(&id, from + static_cast<std::size_t>(i) * sizeof id, sizeof id);
    largest = std::max(largest, static_cast<std::uint32_t>(id));
    out[i] = static_cast<std::int32_t>(id);
  }
  return count == 0 || largest < limit;
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path, std::string name, std::int64_t first)
    : file_(path), name_(name.empty() ? path.string() : std::move(name)) {
  const auto format = file_.metadata().find("format");
  if (format == file_.metadata().end() || format->second != kTokenFormat) {
    user_error("{}: is no token file: its format is \"{}\", not \"{}\"", path.string(),
               format == file_.metadata().end() ? "" : format->second, kTokenFormat);
  }
  tokenizer_name_ = file_.metadata_at("tokenizer_name");
  file_.metadata_at("tokenizer_kind");
  file_.at("tokenizer");
  vocabulary_size_ = number_at(file_, "vocabulary_size", 1, INT32_MAX);
  text_bytes_ = number_at(file_, "text_bytes", 1, INT64_MAX);
  const auto unknown = file_.metadata().find("unknown_bytes");
  if (file_.metadata().contains("decoded_bytes")) {
    unknown_ = {.tokens = number_at(file_, "unknown_tokens", 0, INT64_MAX),
                .bytes = number_at(file_, "unknown_bytes", 0, text_bytes_)};
    decoded_bytes_ = number_at(file_, "decoded_bytes", 1, INT64_MAX);
  } else if (unknown == file_.metadata().end() || unknown->second != kNotCounted) {
    // Written by an earlier version, which did not count what normalising removes.
    const std::string& kind = file_.metadata_at("tokenizer_kind");
    if (kind == config::name_of(config::TokenizerKind::bytes) || kind == config::name_of(config::TokenizerKind::bpe)) {
      unknown_ = tokenizers::Unknown();
      if (unknown != file_.metadata().end()) {
        unknown_ = {.tokens = number_at(file_, "unknown_tokens", 0, INT64_MAX),
                    .bytes = number_at(file_, "unknown_bytes", 0, text_bytes_)};
      }
      decoded_bytes_ = text_bytes_;
    }
  }
  tokens_ = &file_.at("tokens");
  if ((tokens_->dtype != DType::u16 && tokens_->dtype != DType::i32) || tokens_->shape.size() != 1) {
    user_error("{}: tensor \"tokens\" must be U16 or I32 with one axis", path.string());
  }
  size_ = tokens_->numel();
  if (size_ == 0) {
    user_error("{}: holds no tokens", path.string());
  }
  size_ = first > 0 ? std::min(size_, first) : size_;
}

void TokenFile::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  if (begin < 0 || count < 0 || begin > size_ || count > size_ - begin) {
    fail("{}: {} tokens from {} on were asked for, it holds {}", name_, count, begin, size_);
  }
  const std::byte* from = tokens_->data.data() + static_cast<std::size_t>(begin) * size_of(tokens_->dtype);
  const auto limit = static_cast<std::uint32_t>(vocabulary_size_);
  const bool valid = tokens_->dtype == DType::u16 ? widen<std::uint16_t>(from, count, limit, out)
                                                  : widen<std::uint32_t>(from, count, limit, out);
  if (!valid) {
    const std::string path = file_.path().string();
    user_error("{}: is damaged: an id among tokens {} to {} is not below its vocabulary_size {}{}", path, begin,
               begin + count - 1, vocabulary_size_,
               name_ == path ? "" : fmt::format("; it was made from {} and is made again where it is missing", name_));
  }
}

void TokenFile::verify() const {
  const auto was = file_.metadata().find(TokenChecksum::kKey);
  if (was == file_.metadata().end()) {
    return;
  }
  TokenChecksum is;
  is.add(tokens_->data);
  if (is.text() != was->second) {
    user_error("{}: is damaged: the checksum of its tokens is {}, they were written with {}", file_.path().string(),
               is.text(), printable(was->second));
  }
}

std::unique_ptr<tokenizers::Tokenizer> TokenFile::tokenizer() const {
  std::unique_ptr<tokenizers::Tokenizer> tokenizer = tokenizers::read_tokenizer(file_);
  if (tokenizer->vocabulary_size() != vocabulary_size_) {
    user_error("{}: its tokenizer {} has {} ids, but the file says {}", name_, tokenizer->name(),
               tokenizer->vocabulary_size(), vocabulary_size_);
  }
  return tokenizer;
}

}  // namespace headroom::data
