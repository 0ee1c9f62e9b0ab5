#include <algorithm>
#include <array>
#include <utility>

#include "headroom/core/error.h"
#include "kinds.h"

namespace headroom::tokenizers {
namespace {

using config::kByteValues;
constexpr std::int32_t kNone = -1;
constexpr char kOther = '\xff';  // stands for every byte without an id; never part of UTF-8

class Bytes : public Tokenizer {
 public:
  // `values` are the byte values in the order of their ids; empty: all 256.
  explicit Bytes(std::string values) : values_(std::move(values)) {
    const std::size_t other = values_.find(kOther);
    ids_.fill(other == std::string::npos ? kNone : static_cast<std::int32_t>(other));
    for (std::int64_t id = 0; id < vocabulary_size(); ++id) {
      if (values_.empty() || byte_of(id) != static_cast<unsigned char>(kOther)) {
        ids_[byte_of(id)] = static_cast<std::int32_t>(id);
      }
    }
  }

  config::TokenizerKind kind() const override { return config::TokenizerKind::bytes; }
  std::int64_t vocabulary_size() const override { return values_.empty() ? kByteValues : std::ssize(values_); }
  const std::string& serialised() const override { return values_; }

  std::int32_t id_of(std::string_view token) const override {
    return token.size() == 1 ? ids_[static_cast<unsigned char>(token.front())] : kNone;
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (const char c : text) {
      const std::int32_t id = ids_[static_cast<unsigned char>(c)];
      if (id == kNone) {
        user_error(
            "tokenizer {}: the text has the byte 0x{:02x}, which is not in its vocabulary; use "
            "tokenizer.vocabulary_size = {}",
            name(), static_cast<unsigned char>(c), kByteValues);
      }
      ids.push_back(id);
    }
  }

  Unknown unknown(std::string_view text) const override {
    const std::size_t other = values_.find(kOther);
    if (other == std::string::npos) {
      return {};
    }
    const auto count = std::ranges::count_if(
        text, [&](char c) { return ids_[static_cast<unsigned char>(c)] == static_cast<std::int32_t>(other); });
    return {.tokens = count, .bytes = count};
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const std::int32_t id : ids) {
      check_id(id, vocabulary_size());
      text += static_cast<char>(byte_of(id));
    }
    return text;
  }

 private:
  unsigned char byte_of(std::int64_t id) const {
    return static_cast<unsigned char>(values_.empty() ? id : values_[static_cast<std::size_t>(id)]);
  }
  std::string values_;
  std::array<std::int32_t, kByteValues> ids_{};
};

}  // namespace

std::unique_ptr<Tokenizer> train_bytes(const config::TokenizerOptions& options, TextSource& text) {
  if (options.vocabulary_size >= kByteValues) {
    return std::make_unique<Bytes>("");
  }
  std::array<bool, kByteValues> seen{};
  BlockReader blocks(text, "byte values");
  for (std::string block; blocks.next(block);) {
    for (const char c : block) {
      seen[static_cast<unsigned char>(c)] = true;
    }
  }
  std::string values;
  for (std::size_t byte = 0; byte < seen.size(); ++byte) {
    if (seen[byte]) {
      values += static_cast<char>(byte);
    }
  }
  if (values.empty()) {
    user_error("tokenizer: the training text is empty");
  }
  if (std::ssize(values) > options.vocabulary_size) {
    user_error(
        "tokenizer.vocabulary_size: must be at least {}, the number of different bytes in the training text, got {}",
        values.size(), options.vocabulary_size);
  }
  values.resize(static_cast<std::size_t>(options.vocabulary_size), kOther);
  return std::make_unique<Bytes>(std::move(values));
}

std::unique_ptr<Tokenizer> restore_bytes(std::string serialised, std::string_view origin) {
  std::array<bool, kByteValues> seen{};
  for (const char c : serialised.substr(0, serialised.find(kOther))) {
    if (std::exchange(seen[static_cast<unsigned char>(c)], true)) {
      user_error("{}: not a bytes tokenizer: 0x{:02x} has two ids", origin, static_cast<unsigned char>(c));
    }
  }
  if (serialised.size() >= kByteValues ||
      serialised.find_last_not_of(kOther) + 1 != std::min(serialised.size(), serialised.find(kOther))) {
    user_error("{}: not a bytes tokenizer: expected fewer than {} byte values, 0xff only at the end", origin,
               kByteValues);
  }
  return std::make_unique<Bytes>(std::move(serialised));
}

}  // namespace headroom::tokenizers
