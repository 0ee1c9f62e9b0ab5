#include "headroom/models/block.h"

#include "headroom/core/error.h"

namespace headroom::models {

Block::Block(const config::ModelOptions& o, const nn::AttentionPlace& place, const nn::Builder& build)
    : arrangement_(o.arrangement),
      norm_position_(o.norm_position),
      dropout_(o.dropout),
      norm_1_(o.norm, o.norm_epsilon, o.d_model, build.in("norm_1")),
      attention_(o.attention, place, build.in("attention")),
      norm_2_(o.norm, o.norm_epsilon, o.d_model, build.in("norm_2")),
      mlp_(nn::make_mlp(o.mlp, o.d_model, o.n_layers, build.in("ffn"))) {
  if (arrangement_ == config::Arrangement::parallel && norm_position_ == config::NormPosition::post) {
    misuse("model.norm_position: post has no meaning with arrangement parallel, whose two halves read the same input");
  }
}

// `source` holds memory and current tokens, the queries last.
at::Tensor Block::attend(const at::Tensor& source, const BlockInput& input, const nn::Context& context) const {
  const std::int64_t t = input.h.size(1), s = source.size(1);
  nn::AttentionInput attention;
  attention.x = s == t ? source : source.narrow(1, s - t, t);
  attention.source = source;
  attention.valid_keys = input.valid_keys;
  attention.cache = input.cache;
  return nn::dropout(attention_(attention, context.in("attention")), dropout_, context);
}

at::Tensor Block::feed_forward(const at::Tensor& x, const nn::Context& context) const {
  return nn::dropout((*mlp_)(x, dropout_, context.in("ffn")), dropout_, context);
}

at::Tensor Block::operator()(const BlockInput& input, const nn::Context& context) const {
  const at::Tensor& h = input.h;
  const at::Tensor all = input.memory.defined() ? at::cat({input.memory, h}, 1) : h;
  if (norm_position_ == config::NormPosition::post) {
    const at::Tensor middle = norm_1_(h + attend(all, input, context));
    return norm_2_(middle + feed_forward(middle, context));
  }
  const at::Tensor attended = h + attend(norm_1_(all), input, context);
  return attended + feed_forward(norm_2_(arrangement_ == config::Arrangement::parallel ? h : attended), context);
}

}  // namespace headroom::models
