// The config that advice ends with, as a file.
#pragma once

#include <filesystem>
#include <string>

#include "headroom/config/config.h"

namespace headroom::compare {

// Writes `config` as what it changes of the file or recipe `source`, with that as its base; as a whole where this does
// not give the same. `remark`: lines at its top.
void write_advised(const config::Config& config, const std::string& source, const std::string& remark,
                   const std::filesystem::path& file);

}  // namespace headroom::compare
