#include "headroom/ops/attention.h"

#include "attention_operator.h"
#include "engine/ops/head_map/head_map_arguments.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

void check_mixture(const AttentionInputs& in) {
  const Mixture& mixture = *in.mixture;
  const std::int64_t n = mixture.n_components();
  const c10::SymInt groups = in.k.sym_size(1), keys = in.k.sym_size(2);
  const auto per_key = [&](const c10::SymInt& size) { return size == 1 || size == keys; };
  if (mixture.shift && !mixture.more_keys.empty()) {
    fail("attention: a mixture has shifts or more keys, not both");
  }
  if (n < 1) {
    fail("attention: a mixture must have at least one component");
  }
  for (const at::Tensor& key : mixture.more_keys) {
    if (key.sym_sizes() != in.k.sym_sizes()) {
      fail("attention: every component's keys must be shaped as k, {}, got {}", shape_of(in.k), shape_of(key));
    }
  }
  if (mixture.shift && (mixture.shift->dim() != 4 || mixture.shift->sym_size(1) != groups ||
                        !per_key(mixture.shift->sym_size(2)) || mixture.shift->sym_size(3) != in.k.sym_size(3))) {
    fail("attention: shift must be [R, {}, {} or 1, {}], got {}", text_of(groups), text_of(keys),
         text_of(in.k.sym_size(3)), shape_of(*mixture.shift));
  }
  if (mixture.coefficient && (mixture.coefficient->dim() != 1 || mixture.coefficient->sym_size(0) != n)) {
    fail("attention: coefficient must be [{}], got {}", n, shape_of(*mixture.coefficient));
  }
  if (mixture.prior && (mixture.prior->dim() != 3 || mixture.prior->sym_size(0) != n ||
                        mixture.prior->sym_size(1) != groups || !per_key(mixture.prior->sym_size(2)))) {
    fail("attention: prior must be [{}, {}, {} or 1], got {}", n, text_of(groups), text_of(keys),
         shape_of(*mixture.prior));
  }
}

void check_biases(const AttentionInputs& in) {
  if (in.query_bias.has_value() != in.key_bias.has_value()) {
    fail("attention: query_bias and key_bias must be given together");
  }
  const c10::SymInt b = in.q.sym_size(0), h = in.q.sym_size(1), t = in.q.sym_size(2), s = in.k.sym_size(2);
  const auto check_one = [&](const char* name, const OptionalTensor& bias, std::int64_t n_axes, const c10::SymInt& n) {
    const auto one_or = [&](std::int64_t axis, const c10::SymInt& size) {
      return bias->sym_size(axis) == 1 || bias->sym_size(axis) == size;
    };
    if (bias && (bias->dim() != n_axes || !one_or(0, b) || bias->sym_size(1) != h || (n_axes == 4 && !one_or(2, t)) ||
                 bias->sym_size(-1) != n)) {
      fail("attention: {} must be [{} or 1, {}, {}{}], got {}", name, text_of(b), text_of(h),
           n_axes == 4 ? text_of(t) + " or 1, " : "", text_of(n), shape_of(*bias));
    }
  };
  check_one("bias", in.bias, 4, s);
  check_one("query_bias", in.query_bias, 3, t);
  check_one("key_bias", in.key_bias, 3, s);
}

void check(const AttentionInputs& in) {
  const auto& q = in.q;
  const auto& k = in.k;
  const auto& v = in.v;
  const auto& mask = in.mask;
  const auto& r = in.r;
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4) {
    fail("attention: q, k and v must have 4 dimensions, got {}, {} and {}", q.dim(), k.dim(), v.dim());
  }
  const bool fits = k.sym_sizes().slice(0, 3) == v.sym_sizes().slice(0, 3) && q.sym_size(0) == k.sym_size(0) &&
                    q.sym_size(3) == k.sym_size(3) && k.sym_size(1) > 0 && q.sym_size(1) % k.sym_size(1) == 0;
  if (!fits) {
    fail("attention: k must be [B, G, S, e] and v [B, G, S, w] with B={}, e={} and G dividing H={}, got {} and {}",
         text_of(q.sym_size(0)), text_of(q.sym_size(3)), text_of(q.sym_size(1)), shape_of(k), shape_of(v));
  }
  if (mask.window < 0) {
    fail("attention: window must be at least 0, got {}", mask.window);
  }
  if (mask.causal && q.sym_size(2) > k.sym_size(2)) {
    fail("attention: a causal mask needs at least as many keys as queries, got {} and {}", text_of(k.sym_size(2)),
         text_of(q.sym_size(2)));
  }
  if (in.q_position.has_value() != r.has_value()) {
    fail("attention: q_position and r must be given together");
  }
  const c10::SymInt offsets = mask.causal ? k.sym_size(2) : k.sym_size(2) + q.sym_size(2) - 1;
  if (r && (r->dim() != 3 || r->sym_size(0) != q.sym_size(1) || r->sym_size(1) != offsets ||
            r->sym_size(2) != q.sym_size(3))) {
    fail("attention: r must be [H, C, e] = {}x{}x{}, got {}", text_of(q.sym_size(1)), text_of(offsets),
         text_of(q.sym_size(3)), shape_of(*r));
  }
  if (r && in.q_position->sym_sizes() != q.sym_sizes()) {
    fail("attention: q_position must be shaped as q, {}, got {}", shape_of(q), shape_of(*in.q_position));
  }
  check_biases(in);
  if (in.sink && (in.sink->dim() != 1 || in.sink->sym_size(0) != q.sym_size(1))) {
    fail("attention: sink must be [H] = {}, got {}", text_of(q.sym_size(1)), shape_of(*in.sink));
  }
  if (mask.valid_keys && (mask.valid_keys->dim() != 2 || mask.valid_keys->sym_size(0) != q.sym_size(0) ||
                          mask.valid_keys->sym_size(1) != k.sym_size(2))) {
    fail("attention: valid_keys must be [B, S] = {}x{}, got {}", text_of(q.sym_size(0)), text_of(k.sym_size(2)),
         shape_of(*mask.valid_keys));
  }
  const std::vector<c10::SymInt> scores = {q.sym_size(0), q.sym_size(1), q.sym_size(2), k.sym_size(2)};
  for (const std::optional<HeadMap>* map : {&in.pre, &in.post}) {
    if (*map) {
      check_head_map(**map, scores);
    }
  }
  if (in.mixture) {
    check_mixture(in);
  }
  check_formula(in);
}

void check_sequences(const AttentionInputs& in) {
  const std::int64_t n = std::ssize(in.sequences);
  if (in.q.dim() != 4 || in.q.size(0) != n || in.q.size(2) != 1) {
    fail("attention: of {} sequences q must be [{}, H, 1, e], got {}", n, n, shape_of(in.q));
  }
  if (in.pre || in.post || in.mixture || in.formula.given() || in.bias || in.query_bias || in.key_bias ||
      in.mask.valid_keys) {
    fail("attention: sequences with separate keys must have plain scores and separate valid_keys");
  }
  if (in.q_position.has_value() != in.r.has_value() || (in.r && in.q_position->sizes() != in.q.sizes())) {
    fail("attention: q_position, shaped as q, and r must be given together");
  }
  const std::int64_t heads = in.q.size(1), e = in.q.size(3), w = in.v.size(3);
  for (const SequenceKeys& one : in.sequences) {
    const at::Tensor &k = one.k, &v = one.v;
    const bool fits = k.dim() == 4 && v.dim() == 4 && k.size(0) == 1 && v.size(0) == 1 && k.size(1) > 0 &&
                      v.size(1) == k.size(1) && heads % k.size(1) == 0 && k.size(3) == e && v.size(3) == w &&
                      one.begin >= 0 && one.size > 0 && one.begin + one.size <= std::min(k.size(2), v.size(2));
    if (!fits) {
      fail("attention: a sequence's k must be [1, G, C, {}] and its v [1, G, C, {}] with rows [{}, {}), got {} and {}",
           e, w, one.begin, one.begin + one.size, shape_of(k), shape_of(v));
    }
    if (in.r && (in.r->dim() != 3 || in.r->size(0) != heads || in.r->size(1) < one.size || in.r->size(2) != e)) {
      fail("attention: r must be [{}, C, {}] with an offset for each of {} keys, got {}", heads, e, one.size,
           shape_of(*in.r));
    }
    if (one.valid_keys && (one.valid_keys->dim() != 2 || one.valid_keys->numel() != one.size)) {
      fail("attention: a sequence's valid_keys must be [1, {}], got {}", one.size, shape_of(*one.valid_keys));
    }
  }
}

AttentionInputs alone(const AttentionInputs& in, std::int64_t row) {
  const SequenceKeys& own = in.sequences[static_cast<std::size_t>(row)];
  AttentionInputs one = in;
  one.sequences.clear();
  one.q = in.q.narrow(0, row, 1);
  one.k = own.k.narrow(2, own.begin, own.size);
  one.v = own.v.narrow(2, own.begin, own.size);
  one.mask.valid_keys = own.valid_keys;
  if (in.r) {
    one.q_position = in.q_position->narrow(0, row, 1);
    one.r = in.r->narrow(1, in.r->size(1) - own.size, own.size);
  }
  return one;
}

}  // namespace

Backends<AttentionInputs>& attention_backends() {
  static Backends<AttentionInputs> all("attention");
  return all;
}

Backends<AttentionInputs>& attention_sequences_backends() {
  static Backends<AttentionInputs> all("attention_sequences");
  return all;
}

namespace {

at::Tensor attention_of_sequences(const AttentionInputs& in, Implementation implementation) {
  check_sequences(in);
  const auto* together = attention_sequences_backends().choose_internal(implementation, in.q, in);
  if (together != nullptr) {
    attention_backends().choose(implementation, in.q, in);  // counts the choice
    return together->run(in);
  }
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < in.q.size(0); ++row) {
    rows.push_back(attention(alone(in, row), implementation));
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows);
}

struct AttentionCall {
  AttentionInputs in;
  Mixture mixture;
  HeadMapArguments pre, post;
  std::string implementation = "automatic";

  template <class V>
  void visit(V& v) {
    v("q", in.q, "k", in.k, "v", in.v);
    v.by_name();
    v("scale", in.scale, "causal", in.mask.causal, "window", in.mask.window);
    v.constant("valid_keys", in.mask.valid_keys);
    v("q_position", in.q_position, "r", in.r, "bias", in.bias, "query_bias", in.query_bias, "key_bias", in.key_bias);
    v("sink", in.sink, "mixture_keys", mixture.more_keys, "mixture_shift", mixture.shift);
    v("mixture_coefficient", mixture.coefficient, "mixture_prior", mixture.prior, "mixture_maximum", mixture.maximum);
    v("mixture_epsilon", mixture.epsilon);
    pre.visit(v, "pre_");
    post.visit(v, "post_");
    in.formula.visit(v);
    v("implementation", implementation);
  }
};

at::Tensor attention_call(const AttentionCall& c) {
  AttentionInputs in = c.in;
  const Mixture& mixture = c.mixture;
  require_floating("attention", "q, k and v", {in.q, in.k, in.v});
  for (const OptionalTensor& given : {in.q_position, in.r, in.bias, in.query_bias, in.key_bias, in.sink}) {
    if (given && !given->is_floating_point()) {  // a mask, for example
      fail("attention: q_position, r, biases and sink must be floating-point, got {}", toString(given->scalar_type()));
    }
  }
  if (in.mask.valid_keys) {
    require_type("attention", "valid_keys", *in.mask.valid_keys, at::kBool);
  }
  if (!mixture.more_keys.empty() || mixture.shift || mixture.coefficient || mixture.prior || mixture.epsilon != 0.0) {
    in.mixture = mixture;
  }
  if (c.pre.given()) {
    in.pre = c.pre.map();
  }
  if (c.post.given()) {
    in.post = c.post.map();
  }
  return attention(in, implementation_named(c.implementation));
}

}  // namespace

at::Tensor attention(const AttentionInputs& in, Implementation implementation) {
  if (in.difference) {
    return attention_with_difference(in, implementation);
  }
  if (!in.sequences.empty()) {
    return attention_of_sequences(in, implementation);
  }
  check(in);
  const auto* fused = attention_backends().choose(implementation, in.q, in);
  return fused != nullptr ? fused->run(in) : attention_reference(in);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define_public<AttentionCall, attention_call>(library, "attention");
}

}  // namespace headroom::ops
