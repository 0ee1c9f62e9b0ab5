// Keys that somebody gave a value which nothing reads, such as n_experts without projection = "experts".
#pragma once

#include <string>
#include <vector>

#include "headroom/config/config.h"

namespace headroom::config {

// A sentence for each key of attention and MLP, given another value than the usual one, that only parts read which the
// config does not have. What is inherited from a file that chose otherwise is put aside on purpose, and not listed.
std::vector<std::string> unread_keys(const Config& config);

}  // namespace headroom::config
