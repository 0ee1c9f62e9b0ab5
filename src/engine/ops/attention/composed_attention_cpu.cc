#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "attention_cpu.h"
#include "engine/kernels/cpu/attention/composed/composed_attention.h"
#include "engine/kernels/cpu/attention/composed/head_map.h"

namespace headroom::ops {
namespace {

// One stage's tensors; undefined where the stage has no such part.
struct StageTensors {
  at::Tensor fixed, query, key;
};

StageTensors prepared_stage(const HeadMapArguments& in) {
  const auto floats = [](const OptionalTensor& t) { return t ? t->to(at::kFloat) : at::Tensor(); };
  StageTensors to{floats(in.fixed), floats(in.query.factors), floats(in.key.factors)};
  for (at::Tensor* t : {&to.fixed, &to.query, &to.key}) {
    if (t->defined() && (t != &to.key || t->stride(2) != 1)) {
      *t = t->contiguous();
    }
  }
  return to;
}

template <class T>
T* data_of(const at::Tensor& t) {
  if constexpr (std::is_const_v<T>) {
    return t.defined() ? t.const_data_ptr<float>() : nullptr;
  } else {
    return t.defined() ? t.mutable_data_ptr<float>() : nullptr;
  }
}

// Owns the tensors behind the kernels' pointers.
struct ComposedOperands {
  StageTensors pre, post;
  std::optional<MixtureOperands> mixture;
  kernels::ComposedTensors tensors;

  ComposedOperands(const AttentionArguments& in, const AttentionOperands& operands)
      : pre(prepared_stage(in.pre)), post(prepared_stage(in.post)) {
    tensors.attention = operands.tensors;
    if (in.factor) {
      mixture.emplace(in, operands);
      tensors.mixture = &mixture->tensors;
    }
    tensors.pre = stage(in.pre, pre);
    tensors.post = stage(in.post, post);
  }

  static kernels::ComposeStage stage(const HeadMapArguments& in, const StageTensors& t) {
    const auto side = [](const HeadMapArguments::Side& its, const at::Tensor& factors) {
      if (!factors.defined()) {
        return kernels::ComposeSide{};
      }
      return kernels::ComposeSide{.data = factors.const_data_ptr<float>(),
                                  .batch = factors.stride(0),
                                  .row = factors.stride(1),
                                  .rank = its.rank,
                                  .gate = its.gate};
    };
    return {.present = in.given(),
            .skip = in.skip,
            .groups = in.groups,
            .fixed = data_of<const float>(t.fixed),
            .query = side(in.query, t.query),
            .key = side(in.key, t.key)};
  }
};

// A stage's gradients, with separate copies of key factors and fixed maps for every part and sequence.
struct StageGradients {
  StageTensors d;
  StageGradients(const StageTensors& like, std::int64_t parts, std::int64_t batch) {
    const auto zeros = [](const at::Tensor& t, std::int64_t copies) {
      std::vector<std::int64_t> shape = t.sizes().vec();
      shape[0] *= copies;
      return at::zeros(shape, t.options());
    };
    d.query = like.query.defined() ? zeros(like.query, 1) : at::Tensor();
    d.key = like.key.defined() ? zeros(like.key, parts) : at::Tensor();
    d.fixed = like.fixed.defined() ? zeros(like.fixed, parts * batch) : at::Tensor();
  }
  kernels::ComposeStageGradients pointers() const {
    return {.fixed = data_of<float>(d.fixed), .query = data_of<float>(d.query), .key = data_of<float>(d.key)};
  }
  // Returns the gradients, summed over the parts, in the dtypes of the operator's arguments.
  HeadMapArguments result(const HeadMapArguments& like, std::int64_t parts) const;
};

// Parts per sequence: at least two tasks even for a batch of one, and up to four if a part has enough rows to justify
// separate gradients.
std::int64_t gradient_parts(const kernels::AttentionShape& shape) {
  constexpr std::int64_t kMostTasks = 4, kBlocks = 8;
  const std::int64_t blocks = kernels::composed_blocks(shape), b = std::max<std::int64_t>(1, shape.batch);
  const std::int64_t least = std::min<std::int64_t>(blocks, b == 1 ? 2 : 1);
  return std::max<std::int64_t>({1, least, std::min(kMostTasks / b, blocks / kBlocks)});
}

HeadMapArguments StageGradients::result(const HeadMapArguments& like, std::int64_t parts) const {
  HeadMapArguments sums;
  if (like.fixed) {
    sums.fixed = d.fixed.unflatten(0, {-1, like.fixed->size(0)}).sum(0).to(like.fixed->scalar_type());
  }
  if (like.query.factors) {
    sums.query.factors = d.query.to(like.query.factors->scalar_type());
  }
  if (like.key.factors) {
    sums.key.factors = sum_of_parts(d.key, parts).to(like.key.factors->scalar_type());
  }
  return sums;
}

std::int64_t rank_of(const std::optional<HeadMap>& map) {
  return map ? std::max(map->query.rank, map->key.rank) : 0;
}

}  // namespace

void composed_decode(const AttentionArguments& in, const AttentionOperands& operands, const AttentionOutputs& to) {
  const ComposedOperands composed(in, operands);
  kernels::composed_attention_decode(operands.shape, composed.tensors, to.result(),
                                     [](std::int64_t n, const auto& body) { at::parallel_for(0, n, 1, body); });
}

void composed_attention(const AttentionArguments& in, const AttentionOperands& operands, const AttentionOutputs& to) {
  const ComposedOperands composed(in, operands);
  const kernels::AttentionShape& s = operands.shape;
  const kernels::AttentionResult out = to.result();
  const std::int64_t workers = std::min<std::int64_t>(at::get_num_threads(), s.batch * kernels::composed_blocks(s));
  at::parallel_for(0, workers, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t worker = begin; worker < end; ++worker) {
      kernels::composed_attention_forward(s, composed.tensors, out, worker, workers);
    }
  });
}

AttentionArguments composed_attention_backward(const AttentionBackward& back, const AttentionOperands& operands) {
  const kernels::AttentionShape& s = operands.shape;
  const ComposedOperands composed(back.in, operands);
  const std::int64_t parts = gradient_parts(s);
  const AttentionGradientTensors gradients(back, operands, parts);
  const StageGradients pre(composed.pre, parts, s.batch), post(composed.post, parts, s.batch);
  const kernels::ComposedGradients out{
      .parts = parts, .attention = gradients.pointers, .pre = pre.pointers(), .post = post.pointers()};
  at::parallel_for(0, parts * s.batch, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::composed_attention_backward(s, composed.tensors, out, begin, end);
  });
  AttentionArguments d = gradients.result(back.in);
  d.pre = pre.result(back.in.pre, parts);
  d.post = post.result(back.in.post, parts);
  return d;
}

std::string composition_refusal(const AttentionInputs& in) {
  if (in.pre && in.post &&
      (in.pre->n_groups != in.post->n_groups || in.pre->skip != in.post->skip || rank_of(in.pre) != rank_of(in.post))) {
    return "groups, rank and skip of composed heads must be the same before and after the softmax";
  }
  for (const std::optional<HeadMap>* stage : {&in.pre, &in.post}) {
    if (*stage && (*stage)->query.rank > 0 && (*stage)->key.rank > 0 && (*stage)->query.rank != (*stage)->key.rank) {
      return "the rank of composed heads must be the same on the query and the key side";
    }
  }
  const HeadMap& map = in.pre ? *in.pre : *in.post;
  if (in.q.sym_size(1) / map.n_groups > kernels::kMostMappedHeads ||
      std::max(rank_of(in.pre), rank_of(in.post)) > kernels::kMostMapRank) {
    return fmt::format("composed heads are supported up to {} heads per group and rank {}", kernels::kMostMappedHeads,
                       kernels::kMostMapRank);
  }
  return {};
}

}  // namespace headroom::ops
