#pragma once

#include "headroom/ops/attention.h"

namespace headroom::ops {

// Key and value heads repeated for the query heads that share them, along axis 1.
at::Tensor for_every_head(const at::Tensor& grouped, const c10::SymInt& n_heads);

// content_ij of a mixture, [B, H, T, S]; `visit`, where there is one, is shown every s_r.
at::Tensor mixture_scores(const AttentionInputs& inputs, const Visit& visit);

}  // namespace headroom::ops
