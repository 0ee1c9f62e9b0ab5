// Reads whole text files: a file, the files of a folder, or the members of a tar archive; each may be gzip or zstd.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/core/files/byte_reader.h"

namespace headroom::data {

struct Document {
  std::string name;  // shown in messages: "blimp.tar.gz:blimp/data/wh_island.jsonl"
  std::string stem;  // "wh_island": without directories, ".gz" and the extension
  std::string text;  // valid UTF-8 without NUL or byte order mark
};

// Returns the documents whose file names (without ".gz" or ".zst") `wanted` accepts, sorted by name. Folders are
// searched recursively. A single file is always read. Archives are recognised by their extension: .tar,
// .tar.gz, .tar.zst, .tgz. Throws UserError naming the file if it is missing, unreadable, corrupt or invalid UTF-8, if
// a text exceeds 256 MiB or all texts together exceed 1 GiB, and if no file is accepted.
std::vector<Document> read_documents(const std::filesystem::path& path,
                                     const std::function<bool(std::string_view file_name)>& wanted);

// Calls use(line, number) for every line, without its LF or CRLF. Numbers start at 1.
void for_each_line(std::string_view text, const std::function<void(std::string_view line, std::int64_t number)>& use);

// Reads tar archives member by member, with the long names of pax and GNU tar.

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
