// The shipped recipes, read from the source tree.
#pragma once

#include <cstdlib>
#include <string>

#include "headroom/config/config.h"

namespace headroom::cost {

inline config::Config recipe(const std::string& name) {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  return config::load_config(name);
}

}  // namespace headroom::cost
