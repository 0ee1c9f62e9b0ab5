// Reads tar archives member by member, with the long names of pax and GNU tar.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "headroom/core/files.h"

namespace headroom::data {

struct TarMember {
  std::string name;         // control characters replaced by '?'; never used as a path
  std::uint64_t begin = 0;  // byte offset of its content in the archive
  std::uint64_t size = 0;
  char type = '0';  // '0' or NUL: a file; '5': a directory; others: links, devices, pipes

  bool is_file() const { return type == '0' || type == '\0'; }
};

class TarReader {
 public:
  // Fills `out` from byte `at` of the archive and returns the number of bytes, fewer only at its end. Offsets ascend
  // from call to call.
  using Read = std::function<std::size_t(std::uint64_t at, std::span<char> out)>;

  // `archive` names the file in messages.
  TarReader(std::string archive, Read read) : archive_(std::move(archive)), read_(std::move(read)) {}

  // Returns the next member, or nullopt at the end mark. Throws UserError naming the archive if it is truncated or
  // corrupt, or has a member of 8 GiB or more.
  std::optional<TarMember> next();
  // Returns the content of the member that next() has just returned. Throws UserError if the archive ends inside it.
  std::string content(const TarMember& member);
  // Returns the SHA-256 of all headers read so far. Must be the last call.
  std::string header_hash() { return headers_.hex(); }

 private:
  std::optional<TarMember> read_header();

  std::string archive_;
  Read read_;
  std::uint64_t at_ = 0;  // offset of the next header
  Sha256 headers_;
};

}  // namespace headroom::data
