// Named texts read whole: a file, the files of a folder, or the members of a tar archive; each may be gzip or zstd.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::data {

struct Document {
  std::string name;  // for messages: "blimp.tar.gz:blimp/data/wh_island.jsonl"
  std::string stem;  // "wh_island": without folders, ".gz" and one more extension
  std::string text;  // valid UTF-8 without NUL
};

// Those whose file name `wanted` accepts ("wh_island.jsonl", without ".gz", ".zst"), sorted by name; folders are
// searched to their depth. A file named by itself is always wanted. Archives are known by their names: .tar, .tar.gz,
// .tgz. Throws UserError naming the file: missing, unreadable, not UTF-8, a damaged archive or gzip, texts of more
// than 256 MiB or of more than 1 GiB together, nothing that is wanted.
std::vector<Document> read_documents(const std::filesystem::path& path,
                                     const std::function<bool(std::string_view file_name)>& wanted);

// Calls use(line, number) for every line, counted from 1, without its end ("\n" or "\r\n").
void for_each_line(std::string_view text, const std::function<void(std::string_view line, std::int64_t number)>& use);

}  // namespace headroom::data
