// Folders of PNG and JPEG files, one for each class.
#pragma once

#include <filesystem>

#include "headroom/data/images.h"

namespace headroom::data {

// Adds the pictures of `folder`, in the order of their names.
void add_image_folder(const std::filesystem::path& folder, const ImageReading& reading, ImageSet& set);

}  // namespace headroom::data
