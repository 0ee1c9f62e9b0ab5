#include "encoder.h"

#include "headroom/core/error.h"

namespace headroom::models {

Encoder::Encoder(const config::ModelOptions& o, bool final_norm, const nn::Builder& build) {
  for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
    const nn::AttentionPlace place{
        .d_model = o.d_model, .n_layers = o.n_layers, .causal = false, .context_length = o.context_length};
    blocks_.emplace_back(o, place, build.in(fmt::format("layer{}", layer)));
  }
  if (final_norm) {
    norm_f_.emplace(o.norm, o.norm_epsilon, o.d_model, build.in("norm_f"));
  }
}

at::Tensor Encoder::operator()(at::Tensor h, const at::Tensor& valid, const nn::Context& context) const {
  BlockInput input;
  input.h = context.observe("embedding", std::move(h));
  if (valid.defined()) {
    input.valid_keys = valid;
  }
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    input.h = blocks_[layer](input, context.in(fmt::format("layer{}", layer)));
  }
  return norm_f_ ? context.observe("norm_f", (*norm_f_)(input.h)) : input.h;
}

void check_tokens(const char* model, const at::Tensor& tokens, const at::Tensor& valid) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong) {
    fail("{}: tokens must be [B, T] int64, got {} axes of {}", model, tokens.dim(), at::toString(tokens.scalar_type()));
  }
  if (valid.defined() && (valid.sizes() != tokens.sizes() || valid.scalar_type() != at::kBool)) {
    fail("{}: valid must be a bool for each token, of the tokens' shape", model);
  }
}

}  // namespace headroom::models
