// Holds validation tokens out of a token file.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "token_file.h"

namespace headroom::data {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;  // read at a time

std::vector<std::int32_t> some_tokens(const TokenFile& file, std::int64_t begin, std::int64_t end) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kMostTokens, end - begin)));
  file.copy(begin, std::ssize(ids), ids.data());
  return ids;
}

// Returns the first position at or after `wanted` that follows a line end; else the last such position before `wanted`;
// else `wanted`. A line end at the end of the file does not count. `line_end` < 0: the tokenizer has no line-end token.
std::int64_t line_begin_near(const TokenFile& file, std::int64_t wanted, std::int32_t line_end) {
  if (line_end < 0) {
    return wanted;
  }
  const std::int64_t last = file.size() - 1;
  for (std::int64_t at = wanted - 1; at < last; at += kMostTokens) {
    const std::vector<std::int32_t> ids = some_tokens(file, at, last);
    const auto found = std::find(ids.begin(), ids.end(), line_end);
    if (found != ids.end()) {
      return at + (found - ids.begin()) + 1;
    }
  }
  for (std::int64_t end = wanted - 1; end > 0; end -= std::min(end, kMostTokens)) {
    const std::vector<std::int32_t> ids = some_tokens(file, std::max<std::int64_t>(end - kMostTokens, 0), end);
    const auto found = std::find(ids.rbegin(), ids.rend(), line_end);
    if (found != ids.rend()) {
      return end - (found - ids.rbegin());
    }
  }
  return wanted;
}

// Returns the size in bytes of the text that tokens [begin, end) decode to. Decodes line by line where possible,
// because some tokenizers insert a space between tokens or drop the leading space.
std::int64_t decoded_bytes(const TokenFile& file, const tokenizers::Tokenizer& tokenizer, std::int64_t begin,
                           std::int64_t end) {
  const std::int32_t line_end = tokenizer.line_end_id();
  std::int64_t bytes = 0;
  for (std::int64_t at = begin; at < end;) {
    std::vector<std::int32_t> ids = some_tokens(file, at, end);
    if (at + std::ssize(ids) < end && line_end >= 0) {
      const auto last = std::find(ids.rbegin(), ids.rend(), line_end);
      ids.resize(last == ids.rend() ? ids.size() : static_cast<std::size_t>(ids.rend() - last));
    }
    bytes += std::ssize(tokenizer.decode(ids));
    at += std::ssize(ids);
  }
  return bytes;
}

}  // namespace

std::vector<Range> held_out_tokens(const TokenFile& whole, double share, config::Order order) {
  if (whole.size() < 2) {
    user_error("data.validation: must name files: {} has a single token, so none can be held out", whole.name());
  }
  if (order == config::Order::shuffled && !whole.documents().empty()) {
    return drawn_documents(whole.documents(), share);
  }
  const auto count = static_cast<std::int64_t>(share * static_cast<double>(whole.size()));
  const std::int64_t wanted = std::clamp<std::int64_t>(whole.size() - count, 1, whole.size() - 1);
  return {{line_begin_near(whole, wanted, whole.tokenizer()->line_end_id()), whole.size()}};
}

void write_held_out(const TokenFile& whole, const std::vector<Range>& held, const std::filesystem::path& path) {
  const std::unique_ptr<tokenizers::Tokenizer> tokenizer = whole.tokenizer();
  const auto bytes_of = [&](const std::vector<Range>& parts) {
    return sum_over(parts, [&](const Range& part) { return decoded_bytes(whole, *tokenizer, part.begin, part.end); });
  };
  std::optional<std::int64_t> text_bytes;
  if (whole.unknown() && whole.unknown()->tokens == 0) {
    const std::int64_t bytes = bytes_of(held);
    if (bytes > 0 && bytes + bytes_of(complement(held, whole.size())) == whole.decoded_bytes()) {
      text_bytes = bytes;
    }
  }
  write_part_of_token_file(TokenFile(whole.path(), whole.name(), held), text_bytes, path);
}

}  // namespace headroom::data
