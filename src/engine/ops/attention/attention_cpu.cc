#include "attention_cpu.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/kernels/cpu/attention/mixture/mixture_rows.h"
#include "engine/kernels/cpu/matmul/bfloat16.h"
#include "engine/ops/many_rows.h"
#include "engine/ops/shapes.h"

namespace headroom::ops {

kernels::AttentionShape shape_of_call(const AttentionArguments& in) {
  const at::Tensor &q = in.q, &k = in.k;
  return {.batch = q.size(0),
          .heads = q.size(1),
          .kv_heads = k.size(1),
          .queries = q.size(2),
          .keys = k.size(2),
          .d_head = q.size(3),
          .d_value = in.v.size(3),
          .causal = in.causal,
          .window = in.window,
          .scale = static_cast<float>(in.scale),
          .bf16 = q.scalar_type() == at::kBFloat16 && kernels::has_fast_bfloat16()};
}

AttentionOperands::AttentionOperands(const AttentionArguments& in)
    : q(prepared(in.q)), k(prepared(in.k)), v(prepared(in.v)), shape(shape_of_call(in)) {
  tensors.q = view(q);
  tensors.k = view(k);
  tensors.v = view(v);
  if (in.r) {
    q_position = prepared(*in.q_position);
    r = prepared(*in.r);
    tensors.q_position = view(q_position);
    tensors.r = view(r);
  }
  if (in.sink) {
    sink = in.sink->to(at::kFloat).contiguous();
    tensors.sink = sink.const_data_ptr<float>();
  }
  if (in.valid_keys) {
    bias = key_bias(*in.valid_keys);
    tensors.key_bias = bias.const_data_ptr<float>();
  }
}

AttentionOutputs::AttentionOutputs(const AttentionOperands& in)
    : o(results_by_token(in.q, in.v)), log_sum(at::empty(in.q.sizes().slice(0, 3), in.floats())) {}

MixtureOperands::MixtureOperands(const AttentionArguments& in, const AttentionOperands& operands)
    : query_term(in.query_term->to(at::kFloat).contiguous()), key_term(in.key_term->to(at::kFloat).contiguous()) {
  tensors.q = operands.tensors.q;
  tensors.v = operands.tensors.v;
  tensors.keys.push_back(operands.tensors.k);
  for (const at::Tensor& key : in.more_keys) {
    more_keys.push_back(prepared(key));
    tensors.keys.push_back(view(more_keys.back()));
  }
  const at::Tensor factor = in.factor->to(at::kFloat).contiguous();
  tensors.factor.assign(factor.const_data_ptr<float>(), factor.const_data_ptr<float>() + factor.numel());
  tensors.query_term = query_term.const_data_ptr<float>();
  tensors.key_term = key_term.const_data_ptr<float>();
  tensors.key_term_heads = key_term.size(1);
  tensors.epsilon = static_cast<float>(in.epsilon);
  tensors.maximum = in.maximum;
  tensors.key_bias = operands.tensors.key_bias;
  tensors.sink = operands.tensors.sink;
}

AttentionGradientTensors::AttentionGradientTensors(const AttentionBackward& back, const AttentionOperands& operands,
                                                   std::int64_t n_parts)
    : d_o(prepared(back.grad)),
      log_sum(back.log_sum.contiguous()),
      d_q(empty_by_token(operands.q)),
      d_v(empty_per_head(operands.v, operands.shape.heads, n_parts)),
      parts(n_parts) {
  const AttentionArguments& in = back.in;
  const kernels::AttentionShape& s = operands.shape;
  const std::int64_t tasks = parts * s.batch;
  const at::TensorOptions floats = operands.floats();
  pointers.d_o = view(d_o);
  pointers.log_sum = log_sum.const_data_ptr<float>();
  pointers.d_q = view_out(d_q);
  pointers.d_v = view_out(d_v);
  if (back.o) {
    o = prepared(*back.o);
    pointers.o = view(o);
  }
  for (std::size_t i = 0; i < 1 + in.more_keys.size(); ++i) {
    d_keys.push_back(empty_per_head(i == 0 ? in.k : in.more_keys[i - 1], s.heads, parts));
    pointers.d_keys.push_back(view_out(d_keys.back()));
  }
  if (in.r) {
    d_position = empty_by_token(operands.q_position);
    d_r = at::empty({tasks, s.heads, s.offsets(), s.d_head}, floats);
    pointers.d_q_position = view_out(d_position);
    pointers.d_r = view_out(d_r);
  }
  if (in.sink) {
    d_sink = at::empty({tasks, s.heads}, floats);
    pointers.d_sink = d_sink.mutable_data_ptr<float>();
  }
  if (in.factor) {
    d_query_term = at::empty(in.query_term->sizes(), floats);
    d_key_term = at::zeros({tasks, s.heads, in.key_term->size(2), s.keys}, floats);
    pointers.d_query_term = d_query_term.mutable_data_ptr<float>();
    pointers.d_key_term = d_key_term.mutable_data_ptr<float>();
  }
}

AttentionArguments AttentionGradientTensors::result(const AttentionArguments& in) const {
  AttentionArguments d;
  d.q = d_q;
  d.k = per_group(sum_of_parts(d_keys[0], parts), in.k);
  d.v = per_group(sum_of_parts(d_v, parts), in.v);
  for (std::size_t i = 0; i < in.more_keys.size(); ++i) {
    d.more_keys.push_back(per_group(sum_of_parts(d_keys[i + 1], parts), in.more_keys[i]));
  }
  if (in.r) {
    d.q_position = d_position.to(in.q_position->scalar_type());
    d.r = d_r.sum(0).to(in.r->scalar_type());
  }
  if (in.sink) {
    d.sink = d_sink.sum(0).to(in.sink->scalar_type());
  }
  if (in.factor) {
    d.query_term = d_query_term.to(in.query_term->scalar_type());
    d.key_term = per_group(sum_of_parts(d_key_term, parts), *in.key_term);
  }
  return d;
}

namespace {

// Minimum number of heads per thread on the decode path: with few keys a head takes less time than waking a thread.
std::int64_t decode_grain(const kernels::AttentionShape& s) {
  constexpr std::int64_t kMultiplyAdds = 1 << 17;
  return std::max<std::int64_t>(1, kMultiplyAdds / std::max<std::int64_t>(1, 2 * s.queries * s.keys * s.d_head));
}

std::string mixture_refusal(const AttentionInputs& in) {
  const Mixture& mixture = *in.mixture;
  if (in.sink && mixture.epsilon > 0.0) {
    return "sinks are not supported with the epsilon of a mixture of keys";
  }
  if (mixture.n_components() > kernels::kMostComponents) {
    return fmt::format("mixtures of keys are supported up to {} components", kernels::kMostComponents);
  }
  if (mixture.coefficient && mixture.coefficient->requires_grad()) {
    return "mixtures of keys with a learned scale are not supported";
  }
  if (mixture.prior && has_values(*mixture.prior) && mixture.prior->le(0.0).any().item<bool>()) {
    return "mixtures of keys with a prior of 0 are not supported";
  }
  return {};
}

// Calls kernel(shape, tensors, results, begin, end) for ranges of heads, on several threads.
template <class Kernel, class Tensors>
void for_heads_of(const kernels::AttentionShape& shape, std::int64_t grain, Kernel kernel, const Tensors& tensors,
                  const kernels::AttentionResult& out) {
  at::parallel_for(0, shape.batch * shape.heads, grain,
                   [&](std::int64_t begin, std::int64_t end) { kernel(shape, tensors, out, begin, end); });
}

std::optional<FormulaOperands> formula_of(const AttentionArguments& in, const kernels::AttentionShape& shape,
                                          bool blocks, bool backward) {
  return in.formula.given() ? std::optional<FormulaOperands>(std::in_place, in, shape, blocks, backward) : std::nullopt;
}

kernels::AttentionTensors with_formula(kernels::AttentionTensors tensors,
                                       const std::optional<FormulaOperands>& formula) {
  tensors.formula = formula ? &formula->formula : nullptr;
  return tensors;
}

FusedAttention::Results attention_cpu(const AttentionArguments& in) {
  const AttentionOperands operands(in);
  const AttentionOutputs to(operands);
  const kernels::AttentionShape& shape = operands.shape;
  const bool decode = shape.queries < kernels::kMinBlockedQueries && !ManyRows::active();
  const std::int64_t grain = decode ? decode_grain(shape) : 1;
  if (in.heads_together()) {
    (decode ? composed_decode : composed_attention)(in, operands, to);
  } else if (in.factor) {
    const MixtureOperands mixture(in, operands);
    for_heads_of(shape, grain, decode ? kernels::mixture_attention_decode : kernels::mixture_attention_forward,
                 mixture.tensors, to.result());
  } else {
    const auto formula = formula_of(in, shape, !decode, false);
    for_heads_of(shape, grain, decode ? kernels::attention_decode : kernels::attention_forward,
                 with_formula(operands.tensors, formula), to.result());
  }
  return {to.o, to.log_sum};
}

AttentionArguments attention_backward_cpu(const AttentionBackward& back) {
  const AttentionOperands operands(back.in);
  if (back.in.heads_together()) {
    return composed_attention_backward(back, operands);
  }
  const kernels::AttentionShape& shape = operands.shape;
  AttentionGradientTensors gradients(back, operands);
  const FormulaGradientTensors of_formula(back.in.formula, shape);
  gradients.pointers.formula = of_formula.pointers;
  const auto formula = formula_of(back.in, shape, true, true);
  const kernels::AttentionTensors tensors = with_formula(operands.tensors, formula);
  const std::optional<MixtureOperands> mixture =
      back.in.factor ? std::optional<MixtureOperands>(std::in_place, back.in, operands) : std::nullopt;
  at::parallel_for(0, shape.batch * shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    if (mixture) {
      kernels::mixture_attention_backward(shape, mixture->tensors, gradients.pointers, begin, end);
    } else {
      kernels::attention_backward(shape, tensors, gradients.pointers, begin, end);
    }
  });
  AttentionArguments d = gradients.result(back.in);
  of_formula.set_result(back.in.formula, d.formula);
  return d;
}

std::string attention_refusal(const AttentionInputs& in) {
  if (in.bias) {
    return "a bias of query-key pairs is not supported";
  }
  std::string refusal = in.formula.given() ? formula_refusal(in) : in.mixture ? mixture_refusal(in) : "";
  if (refusal.empty() && (in.pre || in.post)) {
    refusal = composition_refusal(in);
  }
  return refusal;
}

at::Tensor attention_run(const AttentionInputs& in) {
  return call<FusedAttention>(fused_arguments(in)).o;
}

const Registration kAttentionOnCpu(attention_backends(),
                                   {{"kernels", at::kCPU, 0, float32_or_bfloat16}, attention_refusal, attention_run});

// The tensors shared by all sequences. Owns the memory behind the kernels' pointers.
struct SharedOperands {
  at::Tensor q, q_position, r, sink, o, log_sum;
  std::vector<at::Tensor> held;

  explicit SharedOperands(const AttentionInputs& in)
      : q(prepared(in.q)),
        o(results_by_token(q, in.v)),
        log_sum(at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat))) {
    if (in.r) {
      q_position = prepared(*in.q_position);
      r = prepared(*in.r);
    }
    if (in.sink) {
      sink = in.sink->to(at::kFloat).contiguous();
    }
    held.reserve(3 * in.sequences.size());
  }
};

struct SequenceTensors {
  kernels::AttentionShape shape;
  kernels::AttentionTensors tensors;
  kernels::AttentionResult out;
};

template <class R>
kernels::HeadsOf<R> of_row(kernels::HeadsOf<R> all, std::int64_t row) {
  all.first = all.first.ahead(row * all.batch);
  return all;
}

// View of keys or values from row `begin` on.
kernels::Heads from_row(const at::Tensor& given, std::int64_t begin, SharedOperands& shared) {
  kernels::Heads heads = view(shared.held.emplace_back(prepared(given)));
  heads.first = heads.first.from(begin);
  return heads;
}

SequenceTensors sequence_of(const AttentionInputs& in, std::int64_t row, SharedOperands& shared) {
  const SequenceKeys& own = in.sequences[static_cast<std::size_t>(row)];
  const std::int64_t heads = shared.q.size(1);
  SequenceTensors one;
  one.shape = {.batch = 1,
               .heads = heads,
               .kv_heads = own.k.size(1),
               .queries = 1,
               .keys = own.size,
               .d_head = shared.q.size(3),
               .d_value = own.v.size(3),
               .causal = in.mask.causal,
               .window = in.mask.causal ? in.mask.window : 0,
               .scale = static_cast<float>(in.scale),
               .bf16 = shared.q.scalar_type() == at::kBFloat16 && kernels::has_fast_bfloat16()};
  one.tensors.q = of_row(view(shared.q), row);
  one.tensors.k = from_row(own.k, own.begin, shared);
  one.tensors.v = from_row(own.v, own.begin, shared);
  if (shared.r.defined()) {
    one.tensors.q_position = of_row(view(shared.q_position), row);
    one.tensors.r = view(shared.r);
    one.tensors.r.first = one.tensors.r.first.from(shared.r.size(1) - own.size);
  }
  if (shared.sink.defined()) {
    one.tensors.sink = shared.sink.const_data_ptr<float>();
  }
  if (own.valid_keys) {
    one.tensors.key_bias = shared.held.emplace_back(key_bias(*own.valid_keys)).const_data_ptr<float>();
  }
  one.out = {of_row(view_out(shared.o), row), shared.log_sum.mutable_data_ptr<float>() + row * heads};
  return one;
}

// Computes all sequences in one parallel region with their heads as tasks: a region per sequence would cost more than a
// query over few keys.
at::Tensor sequences_run(const AttentionInputs& in) {
  SharedOperands shared(in);
  std::vector<SequenceTensors> all;
  std::int64_t keys = 0;
  for (std::int64_t row = 0; row < shared.q.size(0); ++row) {
    all.push_back(sequence_of(in, row, shared));
    keys += all.back().shape.keys;
  }
  kernels::AttentionShape typical = all.front().shape;
  typical.keys = keys / std::ssize(all);
  const std::int64_t heads = typical.heads;
  at::parallel_for(0, std::ssize(all) * heads, decode_grain(typical), [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const SequenceTensors& one = all[static_cast<std::size_t>(begin / heads)];
      const std::int64_t head = begin % heads, until = std::min(heads, head + end - begin);
      kernels::attention_decode(one.shape, one.tensors, one.out, head, until);
      begin += until - head;
    }
  });
  return shared.o;
}

const Registration kSequencesOnCpu(attention_sequences_backends(),
                                   {{"kernels", at::kCPU, 0, float32_or_bfloat16}, never_refuses, sequences_run});

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  implement<FusedAttention, attention_cpu, attention_backward_cpu>(library, c10::DispatchKey::CPU);
}

}  // namespace headroom::ops
