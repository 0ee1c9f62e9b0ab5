// Whole heads let through by the query's token: all heads are computed, the top k of each token count, weighted by
// their gates (SwitchHead Eq. 4-6, the baseline that saves nothing).
#include <cmath>

#include "engine/nn/linear.h"
#include "headroom/nn/projection.h"

namespace headroom::nn {
namespace {

class GatedHeads : public Projection {
 public:
  GatedHeads(const config::AttentionOptions& options, const LayerInit& init, const Builder& build)
      : heads_(make_head_projections(options, init, build)),
        choice_{.n_heads = 1,
                .n_experts = options.n_heads,
                .top_k = options.top_k,
                .gate = options.gate,
                .expert_dropout = options.expert_dropout} {
    select_ = build.matrix("select", {init.d_model, options.n_heads}, Start::normal(init.scaled(init.d_model)),
                           {.in = init.d_model, .out = options.n_heads});
  }

  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads = heads_->project(input, context);
    if (input.x.defined()) {
      const Selection chosen = select_experts(input.x.flatten(0, 1), select_, choice_, context, "select");
      const at::Tensor gate = at::zeros_like(chosen.score).scatter(-1, chosen.index, chosen.weight);  // [B T, 1, H]
      const c10::SymInt b = input.x.sym_size(0), t = input.x.sym_size(1);
      heads.gate = to_compute(gate.view_symint({b, t, -1}).transpose(1, 2).unsqueeze(3), context);
    }
    return heads;
  }

  at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const override {
    return heads_->combine(o, heads, context);
  }

 private:
  std::unique_ptr<Projection> heads_;
  SelectionOptions choice_;
  at::Tensor select_;  // [d, H]
};

const Factory<MakeProjection> kGatedHeads("gated_heads",
                                          [](const config::AttentionOptions& options, const LayerInit& init,
                                             const Builder& build) -> std::unique_ptr<Projection> {
                                            return std::make_unique<GatedHeads>(options, init, build);
                                          });

}  // namespace
}  // namespace headroom::nn
