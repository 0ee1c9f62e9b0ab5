// Which options the formulas of this floor cover.
#pragma once

#include "headroom/config/model_options.h"

namespace headroom::cost {

// Throw MisuseError naming the key that has no cost formula yet.
void require_formula(const config::AttentionOptions& attention);
void require_formula(const config::ModelOptions& model);

// Key/value heads that are computed: routed heads share one.
inline std::int64_t computed_kv_heads(const config::AttentionOptions& attention) {
  return attention.projection == config::Projection::routed_heads ? 1 : attention.kv_heads();
}

// Whether any projection is a bank of experts.
inline bool selects(const config::AttentionOptions& attention) {
  return attention.selects_source() || attention.selects_destination();
}

}  // namespace headroom::cost
