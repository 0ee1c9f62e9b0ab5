// What a model keeps of each sequence while it writes token by token.
#pragma once

#include <cstdint>

#include "headroom/config/model_options.h"

namespace headroom::cost {

// Numbers kept for one sequence when the cache is full, all layers together. Symbols as in cost.h.
//
// A layer keeps for each token, as often as M + T or, in a local layer, the window if that is shorter:
//   keys         G e for every key projection (shifted keys: the one they are shifted from)
//   values       G e
//   composition  key side, each stage: 2 rank H of the low-rank map, H of the gates (DCMHA: 10 H for rank 2)
// Linear attention without memory keeps a state that does not grow: G (e e + e), its R keys summed.
// The decoder of an encoder_decoder keeps keys and values of the source sequence as well. 0 for the kinds that write
// nothing. Throws MisuseError when the count does not fit 63 bits.
std::int64_t decoding_cache_numbers(const config::ModelOptions& model);

}  // namespace headroom::cost
