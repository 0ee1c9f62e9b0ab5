// Headers of tar archives: one before each member.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace headroom::data {

constexpr std::size_t kTarBlock = 512;  // bytes; headers and contents begin at multiples of this
using TarHeader = std::array<char, kTarBlock>;

struct TarMember {
  std::string name;  // control characters replaced by '?'; never used as a path
  std::uint64_t size = 0;
  char type = '0';  // '0' or NUL: a file; '1' to '6': links, devices, directories, pipes

  bool is_file() const { return type == '0' || type == '\0'; }
  bool has_content() const { return type < '1' || type > '6'; }
};

// Parses the header at byte `at` of the archive. Returns nullopt for a block of zeros, which ends the archive. Throws
// UserError naming the archive if the checksum is wrong or the size is not octal.
std::optional<TarMember> read_tar_header(const TarHeader& header, const std::string& archive, std::uint64_t at);

// Returns the bytes that a member of `size` bytes occupies in the archive, including padding.
constexpr std::uint64_t tar_blocks(std::uint64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

}  // namespace headroom::data
