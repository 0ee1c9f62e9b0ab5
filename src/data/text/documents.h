// Reads whole text files: a file, the files of a folder, or the members of a tar archive; each may be gzip or zstd.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace headroom::data
