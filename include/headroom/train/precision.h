// Which number format a run computes its matrix products in: the one place that decides.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "headroom/config/run_options.h"

namespace headroom::train {

// `automatic` becomes bf16 where this CPU multiplies it faster than fp32 (AMX or AVX-512 BF16 instructions), else
// fp32; the others stay. Runs write the answer into their config, so that a resumed run computes alike elsewhere.
config::Precision resolve(config::Precision precision);

// nn::Context::compute_dtype of a precision: bf16 for bf16, nothing (the parameters' fp32) for fp32. Parameters,
// optimizer state, norms, softmax and losses are fp32 in both.
std::optional<at::ScalarType> compute_dtype(config::Precision precision);

}  // namespace headroom::train
