// The kernels of composed attention as operators of torch's dispatcher, with their derivative.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "headroom/core/error.h"
#include "headroom/kernels/cpu/composed_attention.h"
#include "headroom/kernels/cpu/head_mix.h"
#include "heads_on_cpu.h"
#include "registered.h"

namespace headroom::ops {
namespace {

using GradientsOfComposed = std::tuple<at::Tensor, at::Tensor, at::Tensor, std::vector<at::Tensor>>;

// A stage's tensors in the operator's list of six: query and key side and fixed map, before and behind the softmax.
// Undefined tensors are parts that a stage lacks.
constexpr std::size_t kParts = 6;

// What tells the numbers of the two stages' lists apart: heads, ranks, which parts are there.
struct Layout {
  std::int64_t rank, groups;
  bool skip;
  std::vector<bool> has;  // for both stages: query low rank, query gate, key low rank, key gate, present
};

Layout layout_of(at::IntArrayRef numbers) {
  Layout layout{numbers[0], numbers[1], numbers[2] != 0, {}};
  for (std::size_t i = 3; i < numbers.size(); ++i) {
    layout.has.push_back(numbers[i] != 0);
  }
  return layout;
}

// Holds what the kernels' pointers point into.
struct PreparedComposed {
  at::Tensor q, k, v, bias;
  std::array<at::Tensor, kParts> parts;
  kernels::AttentionShape shape;
  kernels::ComposedTensors tensors;

  PreparedComposed(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in, at::TensorList parts_in,
                   const OptionalTensor& valid_keys, const Layout& layout, double scale, bool causal,
                   std::int64_t window)
      : q(prepared(q_in)), k(prepared(k_in)), v(prepared(v_in)) {
    shape = {
        q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), causal, window, static_cast<float>(scale)};
    tensors.attention.q = view<const float>(q);
    tensors.attention.k = view<const float>(k);
    tensors.attention.v = view<const float>(v);
    if (valid_keys) {
      bias = key_bias(*valid_keys);
      tensors.attention.key_bias = bias.const_data_ptr<float>();
    }
    for (std::size_t i = 0; i < kParts; ++i) {
      parts[i] = parts_in[i].to(at::kFloat).contiguous();
    }
    tensors.pre = stage(layout, 0);
    tensors.post = stage(layout, 1);
  }

  kernels::ComposeStage stage(const Layout& layout, std::size_t which) const {
    const auto data = [&](std::size_t part) {
      const at::Tensor& t = parts[which * 3 + part];
      return t.numel() > 0 ? t.const_data_ptr<float>() : nullptr;
    };
    const std::size_t first = which * 5;
    return {.present = layout.has[first + 4],
            .skip = layout.skip,
            .rank = layout.rank,
            .groups = layout.groups,
            .fixed = data(2),
            .query = {data(0), layout.has[first], layout.has[first + 1]},
            .key = {data(1), layout.has[first + 2], layout.has[first + 3]}};
  }
};

std::tuple<at::Tensor, at::Tensor> composed_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                          at::TensorList parts, const OptionalTensor& valid_keys,
                                                          at::IntArrayRef layout, double scale, bool causal,
                                                          std::int64_t window) {
  const PreparedComposed in(q, k, v, parts, valid_keys, layout_of(layout), scale, causal, window);
  const at::Tensor o = empty_by_token(in.q);
  const at::Tensor log_sum = at::empty({q.size(0), q.size(1), q.size(2)}, in.q.options());
  const kernels::AttentionResult out{view<float>(o), log_sum.mutable_data_ptr<float>()};
  if (in.shape.queries < kernels::kFewQueries) {
    kernels::composed_attention_few_queries(in.shape, in.tensors, out,
                                            [](std::int64_t n, const auto& body) { at::parallel_for(0, n, 1, body); });
    return {o.to(q.scalar_type()), log_sum};
  }
  const std::int64_t workers =
      std::min<std::int64_t>(at::get_num_threads(), in.shape.batch * kernels::composed_blocks(in.shape));
  at::parallel_for(0, workers, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t worker = begin; worker < end; ++worker) {
      kernels::composed_attention_forward(in.shape, in.tensors, out, worker, workers);
    }
  });
  return {o.to(q.scalar_type()), log_sum};
}

// Work for two threads even in a batch of one, and for more where a part has rows enough to be worth the gradients of
// its own.
std::int64_t gradient_parts(const kernels::AttentionShape& shape) {
  constexpr std::int64_t kMostTasks = 4, kBlocks = 8;
  const std::int64_t blocks = kernels::composed_blocks(shape), b = std::max<std::int64_t>(1, shape.batch);
  const std::int64_t least = std::min<std::int64_t>(blocks, b == 1 ? 2 : 1);
  return std::max<std::int64_t>({1, least, std::min(kMostTasks / b, blocks / kBlocks)});
}

// [P * B, ...] to [B, ...].
at::Tensor sum_of_parts(const at::Tensor& t, std::int64_t n_parts) {
  return n_parts == 1 ? t : t.unflatten(0, {n_parts, -1}).sum(0);
}

GradientsOfComposed composed_attention_backward_cpu(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                                    const at::Tensor& v, at::TensorList parts,
                                                    const OptionalTensor& valid_keys, const at::Tensor& log_sum,
                                                    at::IntArrayRef layout_in, double scale, bool causal,
                                                    std::int64_t window) {
  const Layout layout = layout_of(layout_in);
  const PreparedComposed in(q, k, v, parts, valid_keys, layout, scale, causal, window);
  const at::Tensor d_o = prepared(grad), sums = log_sum.contiguous();
  const std::int64_t b = q.size(0), h = q.size(1), e = q.size(3), m = h / layout.groups;
  const at::TensorOptions floats = in.q.options();
  const at::Tensor d_q = empty_by_token(in.q);
  const std::int64_t n_parts = gradient_parts(in.shape);
  const at::Tensor d_k = at::empty({n_parts * b, h, k.size(2), e}, floats), d_v = at::empty_like(d_k);
  std::vector<at::Tensor> d_parts;
  for (std::size_t i = 0; i < kParts; ++i) {
    std::vector<std::int64_t> shape = in.parts[i].sizes().vec();
    if (i % 3 == 2 && in.parts[i].numel() > 0) {  // fixed maps are shared by the batch: a sum for each sequence
      shape = {n_parts * b, layout.groups, m, m};
    } else if (i % 3 == 1 && in.parts[i].numel() > 0) {
      shape[0] *= n_parts;
    }
    d_parts.push_back(at::zeros(shape, floats));
  }
  const auto stage = [&](std::size_t which) {
    const auto data = [&](std::size_t part) { return d_parts[which * 3 + part].mutable_data_ptr<float>(); };
    return kernels::ComposeStageGradients{.fixed = data(2), .query = data(0), .key = data(1)};
  };
  kernels::ComposedGradients out{.parts = n_parts, .attention = {}, .pre = {}, .post = {}};
  out.attention = {.d_o = view<const float>(d_o),
                   .o = {},
                   .log_sum = sums.const_data_ptr<float>(),
                   .d_q = view<float>(d_q),
                   .d_q_position = {},
                   .d_k = view<float>(d_k),
                   .d_v = view<float>(d_v),
                   .d_r = {}};
  out.pre = stage(0);
  out.post = stage(1);
  at::parallel_for(0, n_parts * b, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::composed_attention_backward(in.shape, in.tensors, out, begin, end);
  });
  for (std::size_t i = 0; i < kParts; ++i) {
    if (in.parts[i].numel() > 0 && i % 3 > 0) {
      d_parts[i] = i % 3 == 2 ? d_parts[i].sum(0) : sum_of_parts(d_parts[i], n_parts);
    }
    d_parts[i] = d_parts[i].to(parts[i].scalar_type());
  }
  return {d_q.to(q.scalar_type()), per_group(sum_of_parts(d_k, n_parts), k), per_group(sum_of_parts(d_v, n_parts), v),
          std::move(d_parts)};
}

std::tuple<at::Tensor, at::Tensor> composed_attention_meta(const at::Tensor& q, const at::Tensor&, const at::Tensor&,
                                                           at::TensorList, const OptionalTensor&, at::IntArrayRef,
                                                           double, bool, std::int64_t) {
  return {at::empty_like(q), at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
}

GradientsOfComposed composed_attention_backward_meta(const at::Tensor&, const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, at::TensorList parts, const OptionalTensor&,
                                                     const at::Tensor&, at::IntArrayRef, double, bool, std::int64_t) {
  std::vector<at::Tensor> d_parts;
  for (const at::Tensor& part : parts) {
    d_parts.push_back(at::empty_like(part));
  }
  return {at::empty_like(q), at::empty_like(k), at::empty_like(v), std::move(d_parts)};
}

class ComposedAttention : public torch::autograd::Function<ComposedAttention> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v, at::TensorList parts,
                                                const OptionalTensor& valid_keys, at::IntArrayRef layout, double scale,
                                                bool causal, std::int64_t window) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = registered<decltype(composed_attention_cpu)>("headroom::composed_attention");
    auto [o, log_sum] = op.call(q, k, v, parts, valid_keys, layout, scale, causal, window);
    torch::autograd::variable_list saved = {q, k, v, valid_keys.value_or(at::Tensor()), log_sum};
    saved.insert(saved.end(), parts.begin(), parts.end());
    context->save_for_backward(std::move(saved));
    context->mark_non_differentiable({log_sum});
    context->saved_data["layout"] = layout.vec();
    context->saved_data["scale"] = scale;
    context->saved_data["causal"] = causal;
    context->saved_data["window"] = window;
    return {o, log_sum};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    static const auto op =
        registered<decltype(composed_attention_backward_cpu)>("headroom::composed_attention_backward");
    const at::TensorList parts = at::TensorList(saved).slice(5);
    const std::vector<std::int64_t> layout = context->saved_data["layout"].toIntVector();
    auto [d_q, d_k, d_v, d_parts] =
        op.call(grads[0], saved[0], saved[1], saved[2], parts, optional(saved[3]), saved[4], layout,
                context->saved_data["scale"].toDouble(), context->saved_data["causal"].toBool(),
                context->saved_data["window"].toInt());
    torch::autograd::variable_list result = {d_q, d_k, d_v};
    result.insert(result.end(), d_parts.begin(), d_parts.end());
    result.resize(3 + kParts + 5);
    return result;
  }
};

std::tuple<at::Tensor, at::Tensor> composed_attention_autograd(const at::Tensor& q, const at::Tensor& k,
                                                               const at::Tensor& v, at::TensorList parts,
                                                               const OptionalTensor& valid_keys, at::IntArrayRef layout,
                                                               double scale, bool causal, std::int64_t window) {
  const auto result = ComposedAttention::apply(q, k, v, parts, valid_keys, layout, scale, causal, window);
  return {result[0], result[1]};
}

void add_stage(const std::optional<HeadMap>& map, const at::Tensor& like, std::vector<at::Tensor>& parts,
               std::vector<std::int64_t>& layout) {
  const at::Tensor none = at::empty({0}, like.options());
  if (!map) {
    parts.insert(parts.end(), 3, none);
    layout.insert(layout.end(), 5, 0);
    return;
  }
  parts.push_back(map->query.factors.defined() ? map->query.factors : none);
  parts.push_back(map->key.factors.defined() ? map->key.factors.transpose(1, 2).contiguous() : none);
  parts.push_back(map->fixed.value_or(none));
  for (const bool has : {map->query.rank > 0, map->query.has_gate, map->key.rank > 0, map->key.has_gate, true}) {
    layout.push_back(has ? 1 : 0);
  }
}

std::int64_t rank_of(const std::optional<HeadMap>& map) {
  return map ? std::max(map->query.rank, map->key.rank) : 0;
}

}  // namespace

std::string composed_attention_refusal(const AttentionInputs& in) {
  const HeadMap& map = in.pre ? *in.pre : *in.post;
  if (!in.q.is_cpu()) {
    return "composed heads have the reference only beside the CPU";
  }
  if (in.r) {
    return "composed heads with relative positions have the reference only";
  }
  if (in.pre && in.post &&
      (in.pre->n_groups != in.post->n_groups || in.pre->skip != in.post->skip || rank_of(in.pre) != rank_of(in.post))) {
    return "composed heads are fused with the same groups, rank and skip before and behind the softmax";
  }
  for (const std::optional<HeadMap>* stage : {&in.pre, &in.post}) {
    if (*stage && (*stage)->query.rank > 0 && (*stage)->key.rank > 0 && (*stage)->query.rank != (*stage)->key.rank) {
      return "composed heads are fused with the same rank on the sides of query and key";
    }
  }
  if (in.q.size(1) / map.n_groups > kernels::kMostMixedHeads ||
      std::max(rank_of(in.pre), rank_of(in.post)) > kernels::kMostMixRank) {
    return fmt::format("composed heads are fused up to {} heads a group and rank {}", kernels::kMostMixedHeads,
                       kernels::kMostMixRank);
  }
  return {};
}

at::Tensor call_composed_attention(const AttentionInputs& in) {
  static const auto op = registered<decltype(composed_attention_cpu)>("headroom::composed_attention");
  const HeadMap& map = in.pre ? *in.pre : *in.post;
  std::vector<at::Tensor> parts;
  std::vector<std::int64_t> layout = {std::max(rank_of(in.pre), rank_of(in.post)), map.n_groups, map.skip ? 1 : 0};
  add_stage(in.pre, in.q, parts, layout);
  add_stage(in.post, in.q, parts, layout);
  return std::get<0>(op.call(in.q, in.k, in.v, parts, in.mask.valid_keys, layout, in.scale, in.mask.causal,
                             in.mask.causal ? in.mask.window : 0));
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def(
      "composed_attention(Tensor q, Tensor k, Tensor v, Tensor[] parts, Tensor? valid_keys, int[] layout, float scale,"
      " bool causal, int window) -> (Tensor, Tensor)");
  library.def(
      "composed_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor[] parts, Tensor? valid_keys,"
      " Tensor log_sum, int[] layout, float scale, bool causal, int window) -> (Tensor, Tensor, Tensor, Tensor[])");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("composed_attention", composed_attention_cpu);
  library.impl("composed_attention_backward", composed_attention_backward_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("composed_attention", composed_attention_meta);
  library.impl("composed_attention_backward", composed_attention_backward_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("composed_attention", composed_attention_autograd);
}

}  // namespace headroom::ops
