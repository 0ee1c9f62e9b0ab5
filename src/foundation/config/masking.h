// How many of its tokens a masked language model is asked for, in training and in validation (as BERT: Devlin et al.,
// Sec. 3.1).
#pragma once

#include <cstdint>

namespace headroom::config {

inline constexpr std::int64_t kHiddenPercent = 15;

}  // namespace headroom::config
