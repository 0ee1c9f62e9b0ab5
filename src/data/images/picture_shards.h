// Tar shards in the layout of WebDataset, whose pictures are read as they are asked for.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "pictures.h"

namespace headroom::data {

// In the order of the shards, then of their samples. Reads all headers and labels, no pictures.
std::unique_ptr<const Pictures> open_picture_shards(const std::vector<std::filesystem::path>& shards,
                                                    const ImageReading& reading);

}  // namespace headroom::data
