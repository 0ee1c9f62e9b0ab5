// The contents of folders, and the room in their file system. Their locks are in headroom/core/files.h.
#pragma once

#include <filesystem>
#include <functional>
#include <system_error>

namespace headroom {

// Calls visit() for every entry of a folder and its subfolders, in no particular order. Does not enter a subfolder for
// which it returns false, nor links to folders. Returns the error that ended the walk early, if any.
std::error_code walk_folder(const std::filesystem::path& folder,
                            const std::function<bool(const std::filesystem::directory_entry&)>& visit,
                            std::filesystem::directory_options options = {});

// Returns the file in `folder` that the text file `latest` there names; empty if there is no readable `latest`.
std::filesystem::path latest_file(const std::filesystem::path& folder);

// Returns the number of bytes available in the file system of `path`, which need not exist; infinity if unknown.
double available_bytes(const std::filesystem::path& path);

}  // namespace headroom
