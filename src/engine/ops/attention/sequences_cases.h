// The cases of attention of sequences that have keys of their own: their lengths, windows, relative positions, sinks
// and padded keys.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/ops/cases.h"
#include "sequences.h"

namespace headroom::ops {

struct SequencesCase {
  std::vector<std::int64_t> keys;  // of each sequence
  std::int64_t h, g, e, w;
  std::int64_t window = 0;
  bool relative = false, sink = false, padded = false;
  Layout layout = Layout::dense;

  std::string name() const {
    return fmt::format("S{} H{} G{} e{} w{}{}{}{}{}{}", fmt::join(keys, "+"), h, g, e, w,
                       window > 0 ? fmt::format(" window{}", window) : "", relative ? " relative" : "",
                       sink ? " sink" : "", padded ? " padded" : "", name_of(layout));
  }

  // q, k and v of each sequence, q_position and r, sink. The first keys of a sequence are none of its own.
  Problem problem(const Setting& setting) const {
    constexpr std::int64_t kBefore = 2;
    const Draw draw{setting, layout};
    const std::int64_t n = std::ssize(keys);
    std::vector<at::Tensor> leaves = {draw.activation({n, h, 1, e})}, valid;
    for (const std::int64_t size : keys) {
      leaves.push_back(draw.activation({1, g, kBefore + size, e}));
      leaves.push_back(draw.activation({1, g, kBefore + size, w}));
      valid.push_back(at::arange(size).remainder(3).ne(1).unsqueeze(0).to(setting.device));
    }
    if (relative) {
      leaves.push_back(draw.activation({n, h, 1, e}));
      leaves.push_back(draw.activation({h, *std::max_element(keys.begin(), keys.end()), e}));
    }
    if (sink) {
      leaves.push_back(draw.parameter({h}));
    }
    const auto run = [c = *this, valid](const std::vector<at::Tensor>& x, Implementation implementation) {
      auto next = x.begin();
      AttentionInputs in{.q = *next++};
      in.scale = 0.3;
      in.mask = {.causal = true, .window = c.window, .valid_keys = {}};
      for (std::size_t i = 0; i < c.keys.size(); ++i) {
        SequenceKeys& one = in.sequences.emplace_back();
        one = {.k = *next++, .v = *next++, .begin = kBefore, .size = c.keys[i]};
        if (c.padded) {
          one.valid_keys = valid[i];
        }
      }
      const auto longest = static_cast<std::size_t>(std::max_element(c.keys.begin(), c.keys.end()) - c.keys.begin());
      in.k = in.sequences[longest].k.narrow(2, kBefore, c.keys[longest]);
      in.v = in.sequences[longest].v.narrow(2, kBefore, c.keys[longest]);
      if (c.relative) {
        in.q_position = *next++;
        in.r = *next++;
      }
      if (c.sink) {
        in.sink = *next++;
      }
      return attention(in, implementation);
    };
    return {.leaves = std::move(leaves), .run = run, .differentiable = false};
  }

  // As one call of attention has it.
  std::vector<Precision> precisions() const { return {{at::kFloat, 1e-5}}; }
};

inline std::vector<SequencesCase> sequences_cases() {
  std::vector<SequencesCase> all;
  for (SequencesCase c : std::vector<SequencesCase>{{{5}, 2, 2, 7, 7},
                                                    {{1, 40, 17}, 4, 2, 19, 20},
                                                    {{9, 9, 131, 2, 64, 33, 1, 8}, 4, 1, 16, 5},
                                                    {{12, 3, 70}, 3, 3, 13, 13, 9},
                                                    {{12, 3, 70}, 4, 2, 8, 8, 0, true},
                                                    {{6, 90}, 2, 2, 24, 3, 40, true, true},
                                                    {{6, 35, 4}, 4, 4, 5, 5, 0, false, true, true}}) {
    for (const Layout layout : {Layout::dense, Layout::swapped, Layout::by_token, Layout::gaps}) {
      c.layout = layout;
      all.push_back(c);
    }
  }
  return all;
}

}  // namespace headroom::ops
