// What a forward pass is told and what it tells back, beside its tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"

namespace headroom::nn {

// How often each expert was chosen: name "layer3.attention.select_in" -> counts [n_heads * n_experts] (int64, CPU).
using ExpertUsage = std::map<std::string, at::Tensor>;

struct Context {
  bool training = false;
  // Dropout and expert dropout draw from here; needed only while training with a dropout above 0.
  std::optional<at::Generator> generator;
  config::Implementation implementation = config::Implementation::automatic;
  // Matrix products run in this type; norms, softmax, residuals and losses stay in the parameters' type.
  std::optional<at::ScalarType> compute_dtype;
  std::string scope;  // in front of the names below: "layer3.attention."
  // Balance losses before their coefficients, by kind ("entropy"), summed over layers; filled when set.
  std::map<std::string, at::Tensor>* losses = nullptr;
  ExpertUsage* usage = nullptr;                        // filled when set
  std::map<std::string, at::Tensor>* trace = nullptr;  // intermediate values by name ("probs"), for checks; slow

  Context in(const std::string& child) const {
    Context inner = *this;
    inner.scope += child + ".";
    return inner;
  }
};

}  // namespace headroom::nn
