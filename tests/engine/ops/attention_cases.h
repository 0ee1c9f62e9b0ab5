// Cases (operator_cases.h) of attention at even and odd sizes: masks, relative positions, composed heads, mixtures of
// keys, sinks, biases, d_value != d_head. Also cases of attention over separate sequences, and of row_terms.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "engine/ops/attention/attention_operator.h"
#include "headroom/ops/attention.h"
#include "operator_cases.h"

namespace headroom::ops {

struct ComposedCase {
  bool pre = true, post = true, skip = true, fixed = true;
  bool low_query = true, low_key = true, gate_query = true, gate_key = true;
  std::int64_t groups = 1, rank = 2;
};

struct MixtureCase {
  enum Keys { own, shifted, shifted_by_position };
  enum Prior { none, one, per_key };
  std::int64_t n = 2;
  Keys keys = own;
  double coefficient = 0.2;  // c_r = coefficient r, r from 1; with 0, the score is the scaled dot product
  Prior prior = none;
  double epsilon = 0.0;
  bool maximum = false;
};

struct BiasCase {
  bool per_batch = true, per_query = true;
  bool by_token = false;  // query_bias and key_bias instead of bias
};

// The score reads learned0, table0 and token0 if it contains these names.
struct FormulaCase {
  std::string score, mask = {};
  bool normalise = true;
  bool shared = false;  // all heads share the tensors; all sequences share tables, too
  bool queries_last = true;
  std::int64_t first_key = 0;
};

struct AttentionCase {
  enum Padding { none, holes, blind };  // holes: every third key is invalid; blind: the first two are invalid, too
  std::int64_t b, h, g, t, s, e;
  bool causal = true;
  std::int64_t window = 0;
  Padding padding = none;
  bool relative = false;
  std::optional<ComposedCase> composed = {};
  std::optional<MixtureCase> mixture = {};
  Layout layout = Layout::dense;
  Role role = Role::tested;
  std::int64_t w = 0;  // d_value; 0 means e
  bool sink = false;
  std::optional<BiasCase> bias = {};
  std::optional<FormulaCase> formula = {};

  std::int64_t d_value() const { return w > 0 ? w : e; }
  std::string name() const;
  AttentionInputs inputs(const Setting& setting) const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

const std::vector<AttentionCase>& attention_cases();
std::vector<AttentionCase> attention_cases(Role role);

// Returns the defined tensors that have a gradient, in this order: q, k, v, q_position, r, bias, query_bias, key_bias,
// sink, more keys, shift, prior, the formula's, and for each composition the fixed map and both sides' factors.
std::vector<at::Tensor> leaves_of(AttentionInputs in);
// Returns the same inputs with the tensors of leaves() replaced, in the same order.
AttentionInputs with_leaves(AttentionInputs in, const std::vector<at::Tensor>& leaves);

struct SequencesCase {
  std::vector<std::int64_t> keys;  // number of keys of each sequence
  std::int64_t h, g, e, w;
  std::int64_t window = 0;
  bool relative = false, sink = false, padded = false;
  Layout layout = Layout::dense;

  std::string name() const {
    return fmt::format("S{} H{} G{} e{} w{}{}{}{}{}{}", fmt::join(keys, "+"), h, g, e, w,
                       window > 0 ? fmt::format(" window{}", window) : "", relative ? " relative" : "",
                       sink ? " sink" : "", padded ? " padded" : "", name_of(layout));
  }

  // The leaves are each sequence's q, k and v, then q_position, r and sink. Rows before `begin` must be ignored.
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

  // AttentionCase::precisions() derives the bound.
  std::vector<Precision> precisions() const { return {{at::kFloat, 1e-5}}; }
};

inline std::vector<SequencesCase> sequences_cases() {
  return in_layouts(std::vector<SequencesCase>{{{5}, 2, 2, 7, 7},
                                               {{1, 40, 17}, 4, 2, 19, 20},
                                               {{9, 9, 131, 2, 64, 33, 1, 8}, 4, 1, 16, 5},
                                               {{12, 3, 70}, 3, 3, 13, 13, 9},
                                               {{12, 3, 70}, 4, 2, 8, 8, 0, true},
                                               {{6, 90}, 2, 2, 24, 3, 40, true, true},
                                               {{6, 35, 4}, 4, 4, 5, 5, 0, false, true, true}},
                    {Layout::dense, Layout::swapped, Layout::by_token, Layout::gaps});
}

struct RowTermsCase {
  std::int64_t b, heads, n, e, directions;
  Layout layout = Layout::dense;

  std::string name() const { return fmt::format("B{} X{} n{} e{} R{}{}", b, heads, n, e, directions, name_of(layout)); }
  Problem problem(const Setting& setting) const {
    const Draw draw{setting, layout};
    return {{draw.activation({b, heads, n, e}), draw.parameter({heads, directions, e})},
            [](const std::vector<at::Tensor>& x, Implementation implementation) {
              return row_terms(x[0], x[1], implementation);
            }};
  }
  // Each element sums e <= 64 products (B n <= 210 for a direction's gradient), each rounded to 2^-24. With bfloat16
  // inputs, accumulation is in float32 and the rows' gradient is rounded to 8 bits.
  std::vector<Precision> precisions() const { return {{at::kFloat, 2e-6}, {at::kBFloat16, 1.0 / 256}}; }
};

inline std::vector<RowTermsCase> row_terms_cases() {
  return in_layouts(
      std::vector<RowTermsCase>{
          {1, 1, 1, 1, 0}, {2, 3, 5, 7, 0}, {2, 2, 17, 13, 3}, {1, 4, 33, 64, 1}, {3, 1, 70, 41, 2}},
      {Layout::dense, Layout::swapped, Layout::gaps});
}

}  // namespace headroom::ops
