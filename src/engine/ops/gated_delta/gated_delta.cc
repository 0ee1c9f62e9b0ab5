#include "headroom/ops/gated_delta.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "engine/kernels/cpu/attention/delta_rule.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "engine/ops/backend.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "foundation/core/ceil_div.h"
#include "headroom/core/error.h"

namespace headroom::ops {

// The fused operator of the gated delta rule, which saves intermediate values for its backward pass. Results and
// gradients are float32. N = ceil(T / kDeltaChunk).
struct FusedGatedDelta {
  static constexpr const char* kName = "gated_delta_fused";
  struct Inputs {
    at::Tensor q, k, v, beta, log_decay;
    template <class V>
    void visit(V& visitor) {
      visitor("q", q, "k", k, "v", v, "beta", beta, "log_decay", log_decay);
    }
  };
  struct Arguments : Inputs {
    OptionalTensor state;
    template <class V>
    void visit(V& visitor) {
      Inputs::visit(visitor);
      visitor.constant("state", state);
    }
  };
  struct Results {
    at::Tensor o, after;
    at::Tensor states;   // [B, H, N, e, w] before each chunk
    at::Tensor written;  // [B, H, T, w] u_t
    template <class V>
    void visit(V& visitor) {
      visitor("o", o, "after", after, "states", states, "written", written);
    }
  };
  struct Backward {
    at::Tensor grad;
    Inputs in;
    at::Tensor states, written;
    template <class V>
    void visit(V& visitor) {
      visitor("grad", grad);
      in.visit(visitor);
      visitor("states", states, "written", written);
    }
  };
  static Backward save(const Arguments& in, const Results& out) { return {{}, in, out.states, out.written}; }
};

namespace {

Backends<GatedDeltaInputs, GatedDeltaResults>& gated_delta_backends() {
  static Backends<GatedDeltaInputs, GatedDeltaResults> all("gated_delta");
  return all;
}

// Repeats queries or keys [B, G, T, e] for the value heads that share them.
at::Tensor per_value_head(const at::Tensor& t, const at::Tensor& v) {
  const std::int64_t heads = v.size(1) / t.size(1);
  return heads == 1 ? t : t.repeat_interleave(heads, 1);
}

at::Tensor first_state(const GatedDeltaInputs& in) {
  return in.state ? in.state->to(in.v.scalar_type())
                  : at::zeros({in.v.size(0), in.v.size(1), in.k.size(3), in.v.size(3)}, in.v.options());
}

// Applies the equation token by token.
GatedDeltaResults gated_delta_by_token(const GatedDeltaInputs& in) {
  const at::Tensor q = per_value_head(in.q, in.v), k = per_value_head(in.k, in.v);
  at::Tensor state = first_state(in);
  std::vector<at::Tensor> o;
  for (std::int64_t t = 0; t < in.v.size(2); ++t) {
    const auto at = [&](const at::Tensor& x) { return x.narrow(2, t, 1); };  // [B, H, 1, ..]
    state = state * at(in.log_decay).exp().unsqueeze(3);
    const at::Tensor u = at(in.beta).unsqueeze(3) * (at(in.v) - at(k).matmul(state));
    state = state + at(k).transpose(2, 3).matmul(u);
    o.push_back(at(q).matmul(state));
  }
  return {at::cat(o, 2), state};
}

// Processes chunks of tokens by matrix multiplications, as in kernels/cpu/attention/delta_rule.cc.
GatedDeltaResults gated_delta_by_chunk(const GatedDeltaInputs& in) {
  const at::Tensor q = per_value_head(in.q, in.v), k = per_value_head(in.k, in.v);
  at::Tensor state = first_state(in);
  std::vector<at::Tensor> o;
  for (std::int64_t begin = 0; begin < in.v.size(2); begin += kDeltaChunk) {
    const std::int64_t n = std::min(kDeltaChunk, in.v.size(2) - begin);
    const auto chunk = [&](const at::Tensor& x) { return x.narrow(2, begin, n); };
    const at::Tensor total = chunk(in.log_decay).cumsum(2), beta = chunk(in.beta).unsqueeze(3);
    const at::Tensor later = at::ones({n, n}, total.options().dtype(at::kBool)).triu(1);
    const at::Tensor decay =
        (total.unsqueeze(3) - total.unsqueeze(2)).masked_fill(later, -std::numeric_limits<double>::infinity()).exp();
    const at::Tensor from_start = total.exp().unsqueeze(3), keys = chunk(k).transpose(2, 3);
    const at::Tensor a = beta * chunk(k).matmul(keys) * decay;
    const at::Tensor right = beta * (chunk(in.v) - from_start * chunk(k).matmul(state));
    const at::Tensor u = at::linalg_solve_triangular(a, right, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
    o.push_back(from_start * chunk(q).matmul(state) + (chunk(q).matmul(keys) * decay).matmul(u));
    const at::Tensor last = total.narrow(2, n - 1, 1), to_end = (last - total).exp().unsqueeze(2);
    state = last.exp().unsqueeze(3) * state + (keys * to_end).matmul(u);
  }
  return {at::cat(o, 2), state};
}

// Converts the inputs to one dtype: float64 if v is float64, else float32.
GatedDeltaInputs in_one_type(const GatedDeltaInputs& in) {
  const at::ScalarType type = in.v.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {in.q.to(type), in.k.to(type), in.v.to(type), in.beta.to(type), in.log_decay.to(type), in.state};
}

GatedDeltaResults run_chunks(const GatedDeltaInputs& in) {
  return gated_delta_by_chunk(in_one_type(in));
}

GatedDeltaResults run_kernels(const GatedDeltaInputs& in) {
  FusedGatedDelta::Arguments all;
  all.q = in.q;
  all.k = in.k;
  all.v = in.v;
  all.beta = in.beta;
  all.log_decay = in.log_decay;
  all.state = in.state;
  const FusedGatedDelta::Results results = call<FusedGatedDelta>(all);
  return {results.o, results.after};
}

const Registration kGatedDeltaKernels(gated_delta_backends(), {{"kernels", at::kCPU, 0, float32_or_bfloat16},
                                                               never_refuses<GatedDeltaInputs>,
                                                               run_kernels});
const Registration kGatedDeltaChunks(gated_delta_backends(),
                                     {{"chunks", at::kCPU, 1, any_type}, never_refuses<GatedDeltaInputs>, run_chunks});
const Registration kGatedDeltaChunksOnCuda(gated_delta_backends(), {{"chunks", at::kCUDA, 1, any_type},
                                                                    never_refuses<GatedDeltaInputs>,
                                                                    run_chunks});

void check_gated_delta(const GatedDeltaInputs& in) {
  const auto same = [](const at::Tensor& a, const at::Tensor& b, std::initializer_list<std::int64_t> axes) {
    return std::ranges::all_of(axes, [&](std::int64_t i) { return a.sym_size(i) == b.sym_size(i); });
  };
  const bool fits = in.q.dim() == 4 && in.k.dim() == 4 && in.v.dim() == 4 && in.beta.dim() == 3 &&
                    in.log_decay.dim() == 3 && in.q.sym_sizes() == in.k.sym_sizes() && same(in.k, in.v, {0, 2}) &&
                    in.v.sym_size(1) % in.k.sym_size(1) == 0 && same(in.v, in.beta, {0, 1, 2}) &&
                    same(in.v, in.log_decay, {0, 1, 2}) && in.v.sym_size(2) > 0;
  if (!fits) {
    fail(
        "gated delta: q and k must be [B, G, T, e], v [B, H, T, w], beta and log_decay [B, H, T] with G dividing H and "
        "T at least 1, got {}, {}, {}, {} and {}",
        shape_of(in.q), shape_of(in.k), shape_of(in.v), shape_of(in.beta), shape_of(in.log_decay));
  }
  const std::vector<c10::SymInt> state = {in.v.sym_size(0), in.v.sym_size(1), in.k.sym_size(3), in.v.sym_size(3)};
  if (in.state && in.state->sym_sizes() != at::SymIntArrayRef(state)) {
    fail("gated delta: state must be {}, got {}", shape_of(state), shape_of(*in.state));
  }
}

}  // namespace

GatedDeltaResults gated_delta(const GatedDeltaInputs& in, Implementation implementation) {
  check_gated_delta(in);
  const auto* fused = gated_delta_backends().choose(implementation, in.v, in);
  const GatedDeltaResults results = fused != nullptr ? fused->run(in) : gated_delta_by_token(in_one_type(in));
  return {results.o.to(in.v.scalar_type()), results.state.detach()};
}

// gated_delta on the CPU: one task per value head and sequence.

namespace {

static_assert(kernels::kDeltaChunk == kDeltaChunk);

at::Tensor rows_of_floats(const at::Tensor& t) {
  const at::Tensor wide = t.to(at::kFloat);
  return wide.stride(-1) == 1 || wide.size(-1) == 1 ? wide : wide.contiguous();
}

// View of one sequence and head, [T, *], of a tensor [B, heads, T, *].
kernels::Strided<float> matrix_of(const at::Tensor& t, std::int64_t b, std::int64_t h) {
  return {t.mutable_data_ptr<float>() + b * t.stride(0) + h * t.stride(1), t.stride(2)};
}
kernels::Strided<const float> read_only(const kernels::Strided<float>& rows) {
  return {rows.data, rows.stride};
}
// Pointer to one sequence and head of a contiguous tensor [B, heads, ..].
float* block_of(const at::Tensor& t, std::int64_t b, std::int64_t h) {
  return t.mutable_data_ptr<float>() + b * t.stride(0) + h * t.stride(1);
}

struct PreparedDelta {
  at::Tensor q, k, v, beta, log_decay;

  explicit PreparedDelta(const FusedGatedDelta::Inputs& in)
      : q(rows_of_floats(in.q)),
        k(rows_of_floats(in.k)),
        v(rows_of_floats(in.v)),
        beta(in.beta.to(at::kFloat).contiguous()),
        log_decay(in.log_decay.to(at::kFloat).contiguous()) {}

  kernels::DeltaShape shape() const { return {v.size(2), q.size(3), v.size(3)}; }
  kernels::DeltaHead head(std::int64_t b, std::int64_t h) const {
    const std::int64_t key_head = h / (v.size(1) / k.size(1));
    return {read_only(matrix_of(q, b, key_head)), read_only(matrix_of(k, b, key_head)), read_only(matrix_of(v, b, h)),
            block_of(beta, b, h), block_of(log_decay, b, h)};
  }
};

// Calls body(sequence, value head) for every sequence and value head.
template <class Body>
void for_value_heads(const at::Tensor& v, const Body& body) {
  const std::int64_t heads = v.size(1);
  at::parallel_for(0, v.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      body(task / heads, task % heads);
    }
    kernels::tile_product_done();
  });
}

FusedGatedDelta::Results gated_delta_cpu(const FusedGatedDelta::Arguments& given) {
  const PreparedDelta in(given);
  const kernels::DeltaShape s = in.shape();
  const std::int64_t b = in.v.size(0), h = in.v.size(1), chunks = ceil_div(s.tokens, kDeltaChunk);
  const at::TensorOptions options = in.v.options();
  const at::Tensor before = given.state ? given.state->to(at::kFloat).contiguous() : at::Tensor();
  FusedGatedDelta::Results out{empty_by_token(in.v), at::empty({b, h, s.d_key, s.d_value}, options),
                               at::empty({b, h, chunks, s.d_key, s.d_value}, options),
                               at::empty(in.v.sizes(), options)};
  for_value_heads(in.v, [&](std::int64_t row, std::int64_t head) {
    kernels::delta_rule(s, in.head(row, head), before.defined() ? block_of(before, row, head) : nullptr,
                        {block_of(out.states, row, head), matrix_of(out.written, row, head)},
                        matrix_of(out.o, row, head), block_of(out.after, row, head));
  });
  return out;
}

FusedGatedDelta::Arguments gated_delta_backward_cpu(const FusedGatedDelta::Backward& back) {
  const PreparedDelta in(back.in);
  const std::int64_t h = in.v.size(1);
  const at::Tensor d_o = rows_of_floats(back.grad);
  const at::Tensor d_q = empty_per_head(in.q, h), d_k = empty_per_head(in.k, h), d_v = empty_by_token(in.v);
  const at::Tensor d_beta = at::empty_like(in.beta), d_log_decay = at::empty_like(in.beta);
  for_value_heads(in.v, [&](std::int64_t row, std::int64_t head) {
    kernels::delta_rule_backward(in.shape(), in.head(row, head),
                                 {block_of(back.states, row, head), read_only(matrix_of(back.written, row, head))},
                                 read_only(matrix_of(d_o, row, head)),
                                 {matrix_of(d_q, row, head), matrix_of(d_k, row, head), matrix_of(d_v, row, head),
                                  block_of(d_beta, row, head), block_of(d_log_decay, row, head)});
  });
  FusedGatedDelta::Arguments d;
  d.q = per_group(d_q, back.in.q);
  d.k = per_group(d_k, back.in.k);
  d.v = d_v.to(back.in.v.scalar_type());
  d.beta = d_beta.to(back.in.beta.scalar_type());
  d.log_decay = d_log_decay.to(back.in.log_decay.scalar_type());
  return d;
}

FusedGatedDelta::Results gated_delta_meta(const FusedGatedDelta::Arguments& in) {
  const c10::SymInt b = in.v.sym_size(0), h = in.v.sym_size(1), t = in.v.sym_size(2), w = in.v.sym_size(3);
  const c10::SymInt e = in.q.sym_size(3), chunks = (t + (kDeltaChunk - 1)) / kDeltaChunk;
  const at::TensorOptions options = in.v.options().dtype(at::kFloat);
  return {at::empty_symint({b, t, h, w}, options).transpose(1, 2), at::empty_symint({b, h, e, w}, options),
          at::empty_symint({b, h, chunks, e, w}, options), at::empty_symint({b, h, t, w}, options)};
}

FusedGatedDelta::Arguments gated_delta_backward_meta(const FusedGatedDelta::Backward& back) {
  FusedGatedDelta::Arguments d;
  d.q = dense_like(back.in.q);
  d.k = dense_like(back.in.k);
  d.v = empty_by_token(back.in.v);
  d.beta = dense_like(back.in.beta);
  d.log_decay = dense_like(back.in.log_decay);
  return d;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedGatedDelta>(library);
  implement<FusedGatedDelta, gated_delta_cpu, gated_delta_backward_cpu>(library, c10::DispatchKey::CPU);
  implement<FusedGatedDelta, gated_delta_meta, gated_delta_backward_meta>(library, c10::DispatchKey::Meta);
}

}  // namespace headroom::ops
