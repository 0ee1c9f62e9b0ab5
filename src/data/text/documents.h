// Reads whole text files: a file, the files of a folder, or the members of a tar archive; each may be gzip or zstd.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::data {

struct Document {
  std::string name;  // for messages: "blimp.tar.gz:blimp/data/wh_island.jsonl"
  std::string stem;  // "wh_island": without folders, ".gz" and one more ending
  std::string text;  // valid UTF-8 without NUL and byte order mark
};

// Returns the documents whose file names (without ".gz" or ".zst") `wanted` accepts, sorted by name; folders are
// searched recursively. A single file is always read. Archives are recognised by their names: .tar, .tar.gz, .tar.zst,
// .tgz. Throws UserError naming the file: missing, unreadable, invalid UTF-8, a damaged archive or gzip file, a text of
// more than 256 MiB, more than 1 GiB in total, no wanted file.
std::vector<Document> read_documents(const std::filesystem::path& path,
                                     const std::function<bool(std::string_view file_name)>& wanted);

// Calls use(line, number) for every line without its LF or CRLF; numbers start at 1.
void for_each_line(std::string_view text, const std::function<void(std::string_view line, std::int64_t number)>& use);

}  // namespace headroom::data
