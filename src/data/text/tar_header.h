// Headers of tar archives, which stand before each member.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace headroom::data {

constexpr std::size_t kTarBlock = 512;  // members and their headers begin at multiples of it
using TarHeader = std::array<char, kTarBlock>;

struct TarMember {
  std::string name;  // printable; never used as a path
  std::uint64_t size = 0;
  char type = '0';  // '0' or NUL: a file; links, devices, folders, pipes are '1' to '6'

  bool is_file() const { return type == '0' || type == '\0'; }
  bool has_content() const { return type < '1' || type > '6'; }
};

// What the header at byte `at` of the archive says; nothing: a block of zeros, which ends it. Throws UserError naming
// the archive where the checksum is wrong or the size no octal number.
std::optional<TarMember> read_tar_header(const TarHeader& header, const std::string& archive, std::uint64_t at);

// What a member of so many bytes takes in the archive.
constexpr std::uint64_t tar_blocks(std::uint64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

}  // namespace headroom::data
