// What a model keeps of each sequence while decoding token by token.
#pragma once

#include <cstdint>

#include "headroom/config/model_options.h"

namespace headroom::cost {

// Numbers kept for one sequence when the cache is full, all layers together. Symbols as in cost.h.
//
// A layer keeps for each token, as often as M + T or, in a local layer, the window if that is shorter: G e for every
// key projection (shifted keys: the one they are shifted from), G e for the value, and the composition's
// cache_elements() (config/attention_part.h). Without memory, a score with a state that does not grow keeps that
// instead, its state_elements(). The decoder of an encoder_decoder keeps keys and values of the source sequence as
// well. 0 for the kinds that write nothing. Throws UserError when the count does not fit 63 bits.
std::int64_t decoding_cache_numbers(const config::ModelOptions& model);

}  // namespace headroom::cost
