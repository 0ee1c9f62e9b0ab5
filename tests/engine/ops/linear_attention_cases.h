// Cases (operator_cases.h) of linear_attention: one query, equal and unequal lengths, one chunk and several,
// d_value != d_head.
#pragma once

#include <fmt/format.h>

#include <array>

#include "headroom/ops/linear_attention.h"
#include "operator_cases.h"

namespace headroom::ops {

// Replaces the leaves q, k and v.
inline LinearAttentionInputs with_leaves(LinearAttentionInputs in, const std::vector<at::Tensor>& leaves) {
  in.q = leaves[0];
  in.k = leaves[1];
  in.v = leaves[2];
  return in;
}

struct LinearAttentionCase {
  std::int64_t b, h, g, t, s, e;
  bool causal = true, normalise = true, padded = true;
  Layout layout = Layout::by_token;
  std::int64_t w = 0;  // d_value; 0 means e

  std::string name() const {
    return fmt::format("B{} H{} G{} T{} S{} e{}{}{}{}{}{}", b, h, g, t, s, e, w > 0 ? fmt::format(" w{}", w) : "",
                       causal ? "" : " both ways", normalise ? "" : " not normalised", padded ? " padded" : "",
                       name_of(layout));
  }
  // The epsilon is about the sum of the weights.
  LinearAttentionInputs inputs(const Setting& setting) const {
    const Draw draw{setting, layout};
    const auto positive = [&](std::int64_t heads, std::int64_t n, std::int64_t width) {
      return draw.placed(at::rand({b, heads, n, width}).add(0.1), setting.type);
    };
    LinearAttentionInputs in;
    in.q = positive(h, t, e);
    in.k = positive(g, s, e);
    in.v = positive(g, s, w > 0 ? w : e);
    in.causal = causal;
    in.normalise = normalise;
    in.factor = 0.7;
    in.output_factor = 1.3;
    in.epsilon = static_cast<double>(s);
    if (padded) {
      in.valid_keys = at::rand({b, s}).gt(0.2).to(setting.device);
    }
    return in;
  }
  Problem problem(const Setting& setting) const {
    const LinearAttentionInputs in = inputs(setting);
    return {{in.q, in.k, in.v}, [in](const std::vector<at::Tensor>& leaves, Implementation implementation) {
              return linear_attention(with_leaves(in, leaves), implementation);
            }};
  }
  // Each element sums S <= 200 positive terms in another order: sqrt(S) roundings of 2^-24 are 8e-7. A gradient is the
  // difference of two sums; it is at least a quarter of either if the epsilon is as large as the sum of the weights. In
  // bfloat16, the state, the result and the gradients are rounded to 8 bits.
  std::vector<Precision> precisions() const { return {{at::kFloat, 2 * 4 * 8e-7}, {at::kBFloat16, 8.0 / 256}}; }
};

inline std::vector<LinearAttentionCase> linear_attention_cases() {
  std::vector<LinearAttentionCase> all;
  constexpr std::array kLayouts = {Layout::by_token, Layout::gaps, Layout::swapped};
  for (const auto& [t, s] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 9}, {13, 13}, {64, 64}, {65, 131}, {130, 130}, {63, 200}}) {
    for (const bool causal : {true, false}) {
      for (const bool padded : {false, true}) {
        all.push_back({2, 4, 2, t, s, 5, causal, t != 13, padded, kLayouts[all.size() % kLayouts.size()]});
      }
    }
  }
  for (const std::int64_t w : {1, 11}) {
    for (const bool causal : {true, false}) {
      all.push_back({2, 4, 2, 70, 70, 6, causal, true, false, kLayouts[all.size() % kLayouts.size()], w});
    }
  }
  return all;
}

}  // namespace headroom::ops
