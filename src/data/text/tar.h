// Reads tar archives member by member, with the long names of pax and GNU tar.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "foundation/core/files/byte_reader.h"

namespace headroom::data {

struct TarMember {
  std::string name;        // control characters replaced by '?'; never used as a path
  std::uint64_t size = 0;  // bytes of content
  char type = '0';         // '0' or NUL: a file; others: directories, links, devices, pipes

  bool is_file() const { return type == '0' || type == '\0'; }
};

// libarchive does not serve here: it accepts archives that end between members, and ignores gzip's checksums.
class TarReader {
 public:
  // The archive may be gzip or zstd (open_bytes()).
  explicit TarReader(const std::filesystem::path& path) : archive_(path.string()), bytes_(open_bytes(path)) {}

  // Skips to the next member and returns it, or nullopt at the end mark. Throws UserError naming the archive if it is
  // truncated or corrupt, or has a member of 8 GiB or more.
  std::optional<TarMember> next();
  // Returns the content of the member that next() has just returned. Throws UserError if the archive ends inside it.
  std::string content(const TarMember& member);

 private:
  std::optional<TarMember> read_header();
  std::size_t read(std::span<char> out);
  void skip_content();

  std::string archive_;
  std::unique_ptr<ByteReader> bytes_;
  std::uint64_t at_ = 0, next_ = 0;  // bytes read, offset of the next header
};

}  // namespace headroom::data
