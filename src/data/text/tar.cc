#include "tar.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "headroom/core/error.h"

namespace headroom::data {
namespace {

std::string_view field(const TarHeader& header, std::size_t begin, std::size_t length) {
  const std::string_view all(header.data() + begin, length);
  return all.substr(0, all.find('\0'));
}

// Parses octal digits surrounded by spaces.
std::optional<std::uint64_t> octal(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  text = first == std::string_view::npos ? std::string_view() : text.substr(first);
  text = text.substr(0, text.find(' '));
  if (text.empty() || text.find_first_not_of("01234567") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::accumulate(text.begin(), text.end(), std::uint64_t{0}, [](std::uint64_t sum, char digit) {
    return sum * 8 + static_cast<std::uint64_t>(digit - '0');
  });
}

std::string name_of(const TarHeader& header) {
  const bool posix = field(header, 257, 5) == "ustar";
  const std::string_view prefix = posix ? field(header, 345, 155) : std::string_view(), name = field(header, 0, 100);
  std::string all = prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
  std::replace_if(
      all.begin(), all.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return all;
}

}  // namespace

std::optional<TarMember> read_tar_header(const TarHeader& header, const std::string& archive, std::uint64_t at) {
  if (std::all_of(header.begin(), header.end(), [](char c) { return c == '\0'; })) {
    return std::nullopt;
  }
  constexpr std::size_t kSum = 148, kSumLength = 8, kType = 156;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    sum += i >= kSum && i < kSum + kSumLength ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(header[i]);
  }
  if (octal(field(header, kSum, kSumLength)) != sum) {
    user_error("{}: not a tar archive or damaged: bad checksum in the header at byte {}", archive, at);
  }
  TarMember member{.name = name_of(header), .size = 0, .type = header[kType]};
  const auto size = octal(field(header, 124, 12));
  if (!size) {
    user_error("{}: the size of member {} is not a number", archive, member.name);
  }
  member.size = *size;
  return member;
}

}  // namespace headroom::data
