// Mixture of sparse attention (MoSA; Piekos et al. 2025): each head selects k = max(2, T / sparsity) of the T tokens;
// padding is not counted.
// With z_i^h = sigmoid(x_i w_select^h) and I_h the k tokens of the largest z^h,
//   o_i^h = z_i^h sum_{j in I_h} p_ij v_j for i in I_h, else 0,  p the softmax over the visible j in I_h
// The selection is not differentiable. Heads that attend to all tokens may follow. All queries and keys are computed; a
// bias on the scores removes the keys that a head did not select.
#include <limits>

#include "engine/nn/linear.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

// exp(kRemoved) is 0 next to any other score. It is finite, because a query that is not selected and sees no key would
// otherwise be NaN; the gate of such a query is 0.
constexpr double kRemoved = -1e30, kRemovedInFloat16 = -6e4;

class SparseHeads : public Projection {
 public:
  SparseHeads(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : options_(o.of<config::SparseHeadOptions>()), n_sparse_(o.n_heads) {
    config::AttentionOptions all = o;
    all.n_heads = o.computed_heads();
    all.n_kv_heads = 0;
    heads_ = factory_of<MakeProjection>("dense")(all, init, build);
    select_ = build.matrix("select", {init.d_model, n_sparse_}, Distribution::normal(init.scaled(init.d_model)),
                           {.in = init.d_model, .out = n_sparse_});
  }

  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads = heads_->project(input, context);
    choose(input, heads, context);
    if (const std::int64_t dense = options_.dense_heads; dense > 0) {
      heads.gate = at::constant_pad_nd(heads.gate, {0, 0, 0, 0, 0, dense}, 1.0);
      heads.key_bias = at::constant_pad_nd(heads.key_bias, {0, 0, 0, 0, 0, dense});
    }
    return heads;
  }

  at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const override {
    return heads_->combine(o, heads, context);
  }

 private:
  // Sets the gates [B, N, T, 1] and the biases of the keys [B, N, 1, T].
  void choose(const ProjectionInput& input, Heads& heads, const Context& context) const {
    const std::int64_t b = input.x.size(0), t = input.x.size(1), k = options_.chosen(t);
    const at::Tensor score =
        matmul_rows(input.x.flatten(0, 1), select_, {}, context).view({b, t, n_sparse_}).transpose(1, 2);
    at::Tensor rank = score.detach();
    if (options_.include_first) {
      rank = at::cat(
          {at::full_like(rank.narrow(2, 0, 1), std::numeric_limits<double>::infinity()), rank.narrow(2, 1, t - 1)}, 2);
    }
    if (input.valid_keys) {
      rank = rank.masked_fill(input.valid_keys->logical_not().unsqueeze(1), -std::numeric_limits<double>::infinity());
    }
    // In descending order of rank. topk() would order equal values differently for other widths.
    const at::Tensor index = std::get<1>(rank.sort(/*stable=*/true, -1, /*descending=*/true)).narrow(2, 0, k);
    context.show("chosen", [&] { return std::get<0>(index.sort(-1)); });
    at::Tensor removed = at::ones_like(score, at::kBool).scatter(2, index, false);  // [B, N, T]
    if (input.valid_keys) {
      const at::Tensor beyond = at::arange(k, index.options()).ge(chosen_of_rows(*input.valid_keys).unsqueeze(1));
      removed = removed.scatter(2, index, beyond.unsqueeze(1).expand_as(index));
    }
    heads.gate = to_compute(score.sigmoid().masked_fill(removed, 0.0).unsqueeze(3), context);
    heads.key_bias = at::zeros_like(score)
                         .detach()
                         .masked_fill(removed, score.scalar_type() == at::kHalf ? kRemovedInFloat16 : kRemoved)
                         .unsqueeze(2);
  }

  // Returns each row's k, [B].
  at::Tensor chosen_of_rows(const at::Tensor& valid) const {
    return at::floor_divide(valid.sum(1), options_.sparsity).clamp_min(2);
  }

  config::SparseHeadOptions options_;
  std::int64_t n_sparse_;              // N
  std::unique_ptr<Projection> heads_;  // N sparse heads, then the dense ones
  at::Tensor select_;                  // [d, N]
};

const Factory<MakeProjection> kSparseHeads("sparse_heads", make_part<Projection, SparseHeads>);

}  // namespace
}  // namespace headroom::nn
