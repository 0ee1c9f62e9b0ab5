#include "token_file.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "foundation/core/random.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

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

// Returns the stored documents. Throws UserError if they are not ascending parts of `size` tokens.
std::vector<Range> read_documents(const SafetensorsFile& file, std::int64_t size) {
  if (!file.contains(kDocuments)) {
    return {{0, size}};
  }
  const StoredTensor& stored = file.at(kDocuments);
  std::vector<std::int64_t> starts(static_cast<std::size_t>(stored.dtype == DType::i64 ? stored.numel() : 0));
  if (!starts.empty()) {
    std::memcpy(starts.data(), stored.data.data(), starts.size() * sizeof(std::int64_t));
  }
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
  if (file_->metadata().contains("decoded_bytes")) {
    unknown_ = {.tokens = number_at(*file_, "unknown_tokens", 0, kMost),
                .bytes = number_at(*file_, "unknown_bytes", 0, text_bytes_)};
    decoded_bytes_ = number_at(*file_, "decoded_bytes", 1, kMost);
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

// Uses only these parts of the stored tokens. A document is then reduced to its tokens in the parts.
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

}  // namespace headroom::data
