// Folders that hold a folder of pictures for each class, read as they are asked for.
#pragma once

#include <filesystem>
#include <memory>

#include "pictures.h"

namespace headroom::data {

// In the order of the classes' names, then of the files'.
std::unique_ptr<const Pictures> open_picture_folder(const std::filesystem::path& folder, const ImageReading& reading);

}  // namespace headroom::data
