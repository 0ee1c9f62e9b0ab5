// The options of dense heads.
#pragma once

namespace headroom::config {

struct DenseOptions {
  bool output_bias = true;  // if the other projections have biases
};

}  // namespace headroom::config
