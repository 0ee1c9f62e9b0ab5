// Cases (operator_cases.h) of gated_delta: lengths around the chunk's, grouped value heads, d_value != d_head, a state.
#pragma once

#include "engine/ops/operator_cases.h"
#include "headroom/ops/gated_delta.h"

namespace headroom::ops {

struct GatedDeltaCase {
  std::int64_t b, h, g, t, e, w;
  bool state = false;
  double decay = 0.3;  // log_decay is uniform in (-decay, 0)
  Layout layout = Layout::by_token;

  std::string name() const;
  GatedDeltaInputs inputs(const Setting& setting) const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<GatedDeltaCase> gated_delta_cases(Role role);

}  // namespace headroom::ops
