// Identifies files by their content.
#pragma once

#include <filesystem>
#include <string>

namespace headroom {

// Returns the SHA-256 of a file's bytes. The hash of a large file is cached in cache_folder() under its device, inode,
// size and time of last change (ctime), which no program can set. Throws UserError if the file cannot be read.
std::string content_sha256(const std::filesystem::path& path);

}  // namespace headroom
