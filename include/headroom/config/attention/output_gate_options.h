// The options of gates and other changes to head outputs before the output projection.
#pragma once

#include <cstdint>

namespace headroom::config {

struct OutputGateOptions {
  bool exclusive = false;          // head outputs lose their projection on the token's own value
  std::int64_t gate_channels = 0;  // input channels that the gates read; 0: all
};

}  // namespace headroom::config
