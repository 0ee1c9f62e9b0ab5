// The cases of attention: masks, relative positions, composed heads, mixtures of keys, sinks, biases and values of
// another width than keys, at even and odd sizes.
#pragma once

#include "engine/ops/cases.h"
#include "headroom/ops/attention.h"

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
  double coefficient = 0.2;  // c_r = coefficient r, counted from 1; 0: the scaled dot product
  Prior prior = none;
  double epsilon = 0.0;
  bool maximum = false;
};

struct BiasCase {
  bool per_batch = true, per_query = true;
};

struct AttentionCase {
  enum Padding { none, holes, blind };  // blind: besides holes, the first two keys are not valid
  std::int64_t b, h, g, t, s, e;
  bool causal = true;
  std::int64_t window = 0;
  Padding padding = none;
  bool relative = false;
  std::optional<ComposedCase> composed = {};
  std::optional<MixtureCase> mixture = {};
  Layout layout = Layout::dense;
  Role role = Role::tested;
  std::int64_t w = 0;  // width of a value; 0: e
  bool sink = false;
  std::optional<BiasCase> bias = {};

  std::int64_t d_value() const { return w > 0 ? w : e; }
  std::string name() const;
  AttentionInputs inputs(const Setting& setting) const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

const std::vector<AttentionCase>& attention_cases();
std::vector<AttentionCase> attention_cases(Role role);

// Everything that a gradient goes to: q, k, v, then what else there is of q_position, r, bias, sink, more keys, shift,
// prior, and of each composition the fixed map and both sides' factors.
std::vector<at::Tensor> leaves_of(AttentionInputs in);
// The same call of other tensors in that order.
AttentionInputs with_leaves(AttentionInputs in, const std::vector<at::Tensor>& leaves);

}  // namespace headroom::ops
