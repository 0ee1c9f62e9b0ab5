// Cases (operator_cases.h) of gated_delta: lengths near the chunk length, grouped value heads, d_value != d_head, a
// state. Cases of short_convolution: fewer tokens than taps, one tap, widths that are not a multiple of a SIMD vector,
// earlier inputs.
#pragma once

#include <fmt/format.h>

#include <array>

#include "headroom/ops/gated_delta.h"
#include "operator_cases.h"

namespace headroom::ops {

struct GatedDeltaCase {
  std::int64_t b, h, g, t, e, w;
  bool state = false;
  double decay = 0.3;  // log_decay is uniform in (-decay, 0)
  Layout layout = Layout::by_token;

  std::string name() const {
    return fmt::format("B{} H{} G{} T{} e{} w{} decay {}{}{}", b, h, g, t, e, w, decay, state ? " state" : "",
                       name_of(layout));
  }
  GatedDeltaInputs inputs(const Setting& setting) const {
    const Draw draw{setting, layout};
    const auto placed = [&](const at::Tensor& tensor) { return draw.placed(tensor, setting.type); };
    GatedDeltaInputs in;
    in.q = placed(at::randn({b, g, t, e}));
    const at::Tensor k = at::randn({b, g, t, e});
    in.k = placed(k / k.norm(2, {3}, /*keepdim=*/true));
    in.v = placed(at::randn({b, h, t, w}));
    in.beta = at::rand({b, h, t}).to(setting.device, setting.type);
    in.log_decay = at::rand({b, h, t}).mul(-decay).to(setting.device, setting.type);
    if (state) {
      in.state = at::randn({b, h, e, w}).to(setting.device, setting.type);
    }
    return in;
  }
  Problem problem(const Setting& setting) const {
    const GatedDeltaInputs in = inputs(setting);
    return {{in.q, in.k, in.v, in.beta, in.log_decay},
            [state = in.state](const std::vector<at::Tensor>& x, Implementation implementation) {
              return gated_delta({x[0], x[1], x[2], x[3], x[4], state}, implementation).o;
            }};
  }
  // The state sums over a few decay times of tokens, at most 200 here: sqrt(200) roundings of 2^-24 are 8e-7. A
  // gradient passes through two such sums and the triangular system, whose inverse has a norm of a few.
  std::vector<Precision> precisions() const { return {{at::kFloat, 1e-5}, {at::kDouble, 1e-13}}; }
};

inline std::vector<GatedDeltaCase> gated_delta_cases() {
  std::vector<GatedDeltaCase> all;
  constexpr std::array kLayouts = {Layout::by_token, Layout::gaps, Layout::swapped};
  const auto layout = [&] { return kLayouts[all.size() % kLayouts.size()]; };
  for (const std::int64_t t : {1, 2, 15, 17, 63, 64, 65, 127, 128, 129, 200}) {
    all.push_back({2, 4, 2, t, 5, 7, t % 2 == 1, 0.3, layout()});
  }
  for (const auto& [e, w] : std::vector<std::pair<int, int>>{{64, 64}, {1, 1}, {32, 48}, {33, 17}}) {
    all.push_back({1, 2, 2, 100, e, w, true, 0.3, layout()});
  }
  all.push_back({1, 6, 2, 130, 8, 8, false, 0.0, layout()});
  all.push_back({1, 2, 1, 130, 8, 8, true, 30.0, layout()});  // the decay underflows within a chunk
  return all;
}

struct ShortConvolutionCase {
  std::int64_t b, g, t, e, c;
  bool past = false;
  Layout layout = Layout::by_token;

  std::string name() const {
    return fmt::format("B{} G{} T{} e{} c{}{}{}", b, g, t, e, c, past ? " past" : "", name_of(layout));
  }
  Problem problem(const Setting& setting) const {
    const Draw draw{setting, layout};
    const at::Tensor x = draw.activation({b, g, t, e}), w = draw.parameter({g, e, c});
    std::optional<at::Tensor> before;
    if (past) {
      before = draw.activation({b, g, c - 1, e});
    }
    return {{x, w}, [before](const std::vector<at::Tensor>& leaves, Implementation implementation) {
              return short_convolution({leaves[0], leaves[1], before}, implementation);
            }};
  }
  // Each element sums at most 7 taps, or 66 tokens for the gradient of w. In bfloat16, the result and its gradient are
  // rounded, and each input's gradient again.
  std::vector<Precision> precisions() const { return {{at::kFloat, 2e-6}, {at::kBFloat16, 8e-3}}; }
};

inline std::vector<ShortConvolutionCase> short_convolution_cases() {
  std::vector<ShortConvolutionCase> all;
  constexpr std::array kLayouts = {Layout::by_token, Layout::gaps, Layout::swapped};
  for (const std::int64_t t : {1, 2, 3, 4, 5, 33}) {
    for (const auto& [e, c] : std::vector<std::pair<int, int>>{{5, 4}, {64, 4}, {19, 1}, {8, 7}}) {
      all.push_back({2, 3, t, e, c, all.size() % 2 == 1, kLayouts[all.size() % kLayouts.size()]});
    }
  }
  return all;
}

}  // namespace headroom::ops
