// Steps of decoding as tests write them: a tensor with a row for each state.
#pragma once

#include "headroom/models/decoding.h"

namespace headroom::testing {

// The logits [N, V] after tokens [N, n].
template <class Model>
at::Tensor decode(const Model& model, const at::Tensor& tokens, std::vector<models::DecodeState>& states,
                  const nn::Context& context = {}) {
  const at::Tensor dense = tokens.contiguous();
  return model.decode(models::decode_rows(dense, states), context);
}

}  // namespace headroom::testing
