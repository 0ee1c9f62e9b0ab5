#include "headroom/ops/linear_attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "engine/kernels/cpu/attention/prefix_product.h"
#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "engine/ops/backend.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

// Sums over keys of a_ij v_j and of a_ij, without the factor.
struct LinearSums {
  at::Tensor values;   // [B, H, T, w]
  at::Tensor weights;  // [B, H, T]
};

// Padded keys are 0. The reference requires float32 or float64; sums are at least float32.
struct LinearSumsInputs {
  at::Tensor q, k, v;
  bool causal;
  LinearState* carried;  // null: no state
};

Backends<LinearSumsInputs, LinearSums>& linear_attention_backends() {
  static Backends<LinearSumsInputs, LinearSums> all("linear_attention");
  return all;
}

void add_to_state(LinearState& state, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor kv = k.transpose(2, 3).matmul(v), sum = k.sum(2);
  state.kv = state.kv.defined() ? state.kv + kv : kv;
  state.k = state.k.defined() ? state.k + sum : sum;
}

// Sums over keys of a_ij v_j and of a_ij.
struct GroupedSums {
  at::Tensor values;   // [B, G, h, t, w], h query heads per key head
  at::Tensor weights;  // [B, G, h, t]
};

GroupedSums apply_state(const at::Tensor& q, const LinearState& state) {
  return {q.matmul(state.kv.unsqueeze(2)), (q * state.k.unsqueeze(2).unsqueeze(3)).sum(-1)};
}

GroupedSums causal_chunk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearState& state) {
  const at::Tensor a = q.matmul(k.unsqueeze(2).transpose(3, 4)).tril();
  GroupedSums sums{a.matmul(v.unsqueeze(2)), a.sum(-1)};
  if (state.kv.defined()) {
    const GroupedSums past = apply_state(q, state);
    sums = {sums.values + past.values, sums.weights + past.weights};
  }
  return sums;
}

// With `last`, also adds the last chunk to the state.
GroupedSums causal_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, LinearState& state, bool last) {
  const std::int64_t t = q.size(3), before = k.size(2) - t;
  if (before > 0) {
    add_to_state(state, k.narrow(2, 0, before), v.narrow(2, 0, before));
  }
  std::vector<at::Tensor> values, weights;
  for (std::int64_t begin = 0; begin < t || values.empty(); begin += kLinearChunk) {  // without queries: an empty chunk
    const std::int64_t n = std::min(kLinearChunk, t - begin);
    const at::Tensor kc = k.narrow(2, before + begin, n), vc = v.narrow(2, before + begin, n);
    const GroupedSums sums = causal_chunk(q.narrow(3, begin, n), kc, vc, state);
    values.push_back(sums.values);
    weights.push_back(sums.weights);
    if (last || begin + n < t) {
      add_to_state(state, kc, vc);
    }
  }
  return {at::cat(values, 3), at::cat(weights, 3)};
}

LinearSums linear_sums_reference(const LinearSumsInputs& in) {
  const at::Tensor q = in.q.unflatten(1, {in.k.size(1), -1});
  LinearState own;
  LinearState& state = in.carried != nullptr ? *in.carried : own;
  GroupedSums sums;
  if (in.causal) {
    sums = causal_sums(q, in.k, in.v, state, in.carried != nullptr);
  } else {
    add_to_state(state, in.k, in.v);
    sums = apply_state(q, state);
  }
  return {sums.values.flatten(1, 2), sums.weights.flatten(1, 2)};
}

at::Tensor wide(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat);
}

// The CPU backend, built on a differentiable operator `prefix_product`.
using kernels::Visible;

struct PrefixProduct {
  static constexpr const char* kName = "prefix_product";
  struct Arguments {
    at::Tensor a, b, c;
    std::int64_t visible = 0;
    bool half = false;  // c of the first forward pass was bfloat16
    template <class V>
    void visit(V& v) {
      v("a", a, "b", b, "c", c);
      v.needed("visible", visible);
      v("half", half);
    }
  };
  using Results = Single;
  using Backward = GradAndInputs<Arguments>;
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in}; }

  // Every gradient is a prefix product again; the gradients of b and c have the visibility transposed.
  static Arguments gradients(const Backward& back) {
    const auto& [a, b, c, seen, half] = back.in;
    const auto visible = static_cast<Visible>(seen);
    const Visible other_way = visible == Visible::all       ? Visible::all
                              : visible == Visible::earlier ? Visible::later
                                                            : Visible::earlier;
    const auto multiply = [same = half](const at::Tensor& x, const at::Tensor& y, const at::Tensor& z, Visible by) {
      return call<PrefixProduct>({x, y, z, static_cast<std::int64_t>(by), same}).result;
    };
    return {per_group(multiply(back.grad, c, b, visible), a), per_group(multiply(c, back.grad, a, other_way), b),
            per_group(multiply(b, a, back.grad, other_way), c), 0, false};
  }
};

Single prefix_product_cpu(const PrefixProduct::Arguments& in) {
  const at::Tensor a = prepared(in.a), b = prepared(in.b), c = prepared(in.c);
  const std::int64_t heads = std::max({a.size(1), b.size(1), c.size(1)});
  const kernels::PrefixProductShape shape{a.size(2),
                                          b.size(2),
                                          a.size(3),
                                          c.size(3),
                                          static_cast<Visible>(in.visible),
                                          in.half && kernels::has_fast_bfloat16()};
  const at::Tensor y = at::empty({a.size(0), heads, shape.rows, shape.d_value}, a.options().dtype(at::kFloat));
  const auto from = [&](const at::Tensor& t, std::int64_t batch, std::int64_t h) {
    return view(t).rows(batch, h / (heads / t.size(1)));
  };
  at::parallel_for(0, a.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t batch = task / heads, h = task % heads;
      kernels::prefix_product(shape, from(a, batch, h), from(b, batch, h), from(c, batch, h),
                              {y.mutable_data_ptr<float>() + task * shape.rows * shape.d_value, shape.d_value});
    }
    kernels::tile_product_done();
  });
  return {y};
}

Single prefix_product_meta(const PrefixProduct::Arguments& in) {
  const c10::SymInt heads = in.a.sym_size(1).max(in.b.sym_size(1)).max(in.c.sym_size(1));
  return {at::empty_symint({in.a.sym_size(0), heads, in.a.sym_size(2), in.c.sym_size(3)},
                           in.a.options().dtype(at::kFloat))};
}

// Returns y [B, H, T, m], y_i = sum over visible j of (a_i . b_j) c_j, in float32; a [B, H, T, n], b [B, H or G, S, n],
// c [B, H or G, S, m]. `causal`: j <= S - T + i, else all j. If c is bfloat16 and the CPU multiplies bfloat16 faster,
// operands are rounded to bfloat16.
at::Tensor prefix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, bool causal) {
  const Visible visible = causal ? Visible::earlier : Visible::all;
  return call<PrefixProduct>({a, b, c, static_cast<std::int64_t>(visible), c.scalar_type() == at::kBFloat16}).result;
}

std::string linear_attention_refusal(const LinearSumsInputs& in) {
  return in.carried != nullptr ? "a recurrent state is not supported" : "";
}

// A column of ones appended to v gives the sum of the weights.
LinearSums linear_sums_cpu(const LinearSumsInputs& in) {
  const at::Tensor ones = at::ones_like(in.v.narrow(3, 0, 1));
  const at::Tensor sums = prefix_product(in.q, in.k, at::cat({in.v, ones}, 3), in.causal);
  return {sums.slice(3, 0, -1), sums.select(3, -1)};
}

const Registration kLinearAttentionOnCpu(linear_attention_backends(), {{"kernels", at::kCPU, 0, float32_or_bfloat16},
                                                                       linear_attention_refusal,
                                                                       linear_sums_cpu});

void check(const LinearAttentionInputs& in) {
  const at::Tensor &q = in.q, &k = in.k;
  const bool fits = q.dim() == 4 && k.dim() == 4 && in.v.dim() == 4 &&
                    k.sym_sizes().slice(0, 3) == in.v.sym_sizes().slice(0, 3) && q.sym_size(0) == k.sym_size(0) &&
                    q.sym_size(3) == k.sym_size(3) && q.sym_size(1) > 0 && k.sym_size(1) > 0 &&
                    q.sym_size(1) % k.sym_size(1) == 0;
  if (!fits) {
    fail(
        "linear attention: q must be [B, H, T, e], k [B, G, S, e] and v [B, G, S, w] with G dividing H, got {}, {} and "
        "{}",
        shape_of(q), shape_of(k), shape_of(in.v));
  }
  if (in.valid_keys && (in.valid_keys->dim() != 2 || in.valid_keys->sym_size(0) != k.sym_size(0) ||
                        in.valid_keys->sym_size(1) != k.sym_size(2))) {
    fail("linear attention: valid_keys must be [B, S] = {}x{}, got {}", text_of(k.sym_size(0)), text_of(k.sym_size(2)),
         shape_of(*in.valid_keys));
  }
  if (in.causal && q.sym_size(2) > k.sym_size(2)) {
    fail("linear attention: a causal mask needs at least as many keys as queries, got {} and {}",
         c10::str(k.sym_size(2)), c10::str(q.sym_size(2)));
  }
}

// The state must hold both sums or neither.
void check_state(const LinearState& state, const at::Tensor& k, const at::Tensor& v) {
  if (!state.kv.defined() && !state.k.defined()) {
    return;
  }
  const c10::SymInt b = k.sym_size(0), g = k.sym_size(1), e = k.sym_size(3);
  const std::vector<c10::SymInt> of_products = {b, g, e, v.sym_size(3)}, of_keys = {b, g, e};
  if (!state.kv.defined() || !state.k.defined() || state.kv.sym_sizes() != at::SymIntArrayRef(of_products) ||
      state.k.sym_sizes() != at::SymIntArrayRef(of_keys)) {
    fail("linear attention: the state must be {} and {}, got {} and {}", shape_of(of_products), shape_of(of_keys),
         state.kv.defined() ? shape_of(state.kv) : "none", state.k.defined() ? shape_of(state.k) : "none");
  }
}

struct LinearAttentionArguments : LinearAttentionInputs {
  template <class V>
  void visit(V& visitor) {
    visitor("q", q, "k", k, "v", v);
    visitor.constant("valid_keys", valid_keys);
    visitor.by_name();
    visitor("causal", causal, "factor", factor, "output_factor", output_factor, "normalise", normalise);
    visitor("epsilon", epsilon);
  }
};

void check_types(const LinearAttentionInputs& in) {
  require_floating("linear attention", "q, k and v", {in.q, in.k, in.v});
  if (in.valid_keys) {
    require_type("linear attention", "valid_keys", *in.valid_keys, at::kBool);
  }
}

at::Tensor linear_attention_call(const Call<LinearAttentionArguments>& c) {
  check_types(c.in);
  return linear_attention(c.in, implementation_named(c.implementation));
}

// Arguments with a state; the result includes the state after these keys.
struct LinearAttentionStep {
  LinearAttentionArguments in;
  OptionalTensor kv, k;  // LinearState
  template <class V>
  void visit(V& v) {
    in.visit(v);
    v("state_kv", kv, "state_k", k);
  }
};
struct LinearAttentionStepResults {
  at::Tensor o, kv, k;
  template <class V>
  void visit(V& v) {
    v("o", o, "state_kv", kv, "state_k", k);
  }
};

LinearAttentionStepResults linear_attention_step(const LinearAttentionStep& c) {
  check_types(c.in);
  LinearState state{c.kv.value_or(at::Tensor()), c.k.value_or(at::Tensor())};
  const at::Tensor o = linear_attention(c.in, Implementation::automatic, &state);
  return {o, state.kv, state.k};
}

}  // namespace

at::Tensor linear_attention(const LinearAttentionInputs& in, Implementation implementation, LinearState* carried) {
  check(in);
  if (carried != nullptr) {
    check_state(*carried, in.k, in.v);
  }
  const auto* fused = linear_attention_backends().choose(implementation, in.q, {in.q, in.k, in.v, in.causal, carried});
  const auto operand = [&](const at::Tensor& t) { return fused != nullptr ? t : wide(t); };
  LinearSumsInputs all{operand(in.q), operand(in.k), operand(in.v), in.causal, carried};
  if (in.valid_keys) {
    all.k = all.k * in.valid_keys->to(all.k.scalar_type()).unsqueeze(1).unsqueeze(3);
  }
  const LinearSums sums = fused != nullptr ? fused->run(all) : linear_sums_reference(all);
  at::Tensor o = sums.values * (in.factor * in.output_factor);
  if (in.normalise) {
    const at::Tensor weight = sums.weights * in.factor + in.epsilon;
    const at::Tensor none = weight.detach().eq(0.0);
    o = (o / weight.masked_fill(none, 1.0).unsqueeze(-1)).masked_fill(none.unsqueeze(-1), 0.0);
  }
  return o.to(in.v.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<PrefixProduct>(library);
  implement<PrefixProduct, prefix_product_cpu>(library, c10::DispatchKey::CPU);
  implement<PrefixProduct, prefix_product_meta>(library, c10::DispatchKey::Meta);
  define_public<Call<LinearAttentionArguments>, linear_attention_call>(library, "linear_attention");
  define_public<LinearAttentionStep, linear_attention_step>(library, "linear_attention_step");
}

}  // namespace headroom::ops
