// The shipped recipes, read from the source tree.
#pragma once

#include <string>

#include "headroom/config/config.h"
#include "headroom/core/files.h"

namespace headroom::cost {

inline config::Config recipe(const std::string& name) {
  const std::string path = std::string(HEADROOM_SOURCE_DIR) + "/recipes/" + name + ".toml";
  config::Config config = config::parse_config(read_text_file(path), path);
  config::check(config, path);
  return config;
}

}  // namespace headroom::cost
