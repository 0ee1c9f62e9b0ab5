// Shifted keys: component r's key is the one projection's key minus a learned vector (sMGK, Transformer-MGK Eq. 12).
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/config/attention_options.h"
#include "headroom/nn/parameters.h"
#include "headroom/nn/position.h"

namespace headroom::nn {

class KeyShift {
 public:
  // Parameter "shift" [R, G, e] with keys = "shifted", nothing else. The first is initialised to 0, the others normal.
  KeyShift(const config::AttentionOptions& options, const Builder& build);

  // [R, G, 1 or n_keys, e] to subtract from keys at positions `first_position` and up, rotated by `rotary`;
  // nothing where keys are not shifted.
  std::optional<at::Tensor> of_keys(const c10::SymInt& n_keys, std::int64_t first_position,
                                    const std::optional<Rotary>& rotary) const;

 private:
  at::Tensor shift_;
};

}  // namespace headroom::nn
