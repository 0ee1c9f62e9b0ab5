// All sequences in one parallel region, their heads the tasks: a call for each of them costs more than the few queries
// of a short text.
#include <ATen/Parallel.h>

#include <algorithm>

#include "cpu.h"
#include "sequences.h"

namespace headroom::ops {
namespace {

// What all sequences share; holds what the kernels' pointers point into.
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

struct Sequence {
  kernels::AttentionShape shape;
  kernels::AttentionTensors tensors;
  kernels::AttentionResult out;
};

template <class R>
kernels::HeadsOf<R> of_row(kernels::HeadsOf<R> all, std::int64_t row) {
  all.first = all.first.ahead(row * all.batch);
  return all;
}

// Keys or values from row `begin` on, as the kernels read them.
kernels::Heads from_row(const at::Tensor& given, std::int64_t begin, SharedOperands& shared) {
  kernels::Heads heads = view(shared.held.emplace_back(prepared(given)));
  heads.first = heads.first.from(begin);
  return heads;
}

Sequence sequence_of(const AttentionInputs& in, std::int64_t row, SharedOperands& shared) {
  const SequenceKeys& own = in.sequences[static_cast<std::size_t>(row)];
  const std::int64_t heads = shared.q.size(1);
  Sequence one;
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
               .half = shared.q.scalar_type() == at::kBFloat16 && kernels::multiplies_bfloat16()};
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

at::Tensor sequences_run(const AttentionInputs& in) {
  SharedOperands shared(in);
  std::vector<Sequence> all;
  std::int64_t keys = 0;
  for (std::int64_t row = 0; row < shared.q.size(0); ++row) {
    all.push_back(sequence_of(in, row, shared));
    keys += all.back().shape.keys;
  }
  kernels::AttentionShape typical = all.front().shape;
  typical.keys = keys / std::ssize(all);
  const std::int64_t heads = typical.heads;
  at::parallel_for(0, std::ssize(all) * heads, few_queries_grain(typical), [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const Sequence& one = all[static_cast<std::size_t>(begin / heads)];
      const std::int64_t head = begin % heads, until = std::min(heads, head + end - begin);
      kernels::attention_few_queries(one.shape, one.tensors, one.out, head, until);
      begin += until - head;
    }
  });
  return shared.o;
}

[[maybe_unused]] const bool kSequencesOnCpu =
    attention_sequences_backends().add({{"kernels", at::kCPU, 0, float32_or_bfloat16},
                                        [](const AttentionInputs&) { return std::string(); },
                                        sequences_run});

}  // namespace
}  // namespace headroom::ops
