#include "headroom/models/masked_language_model.h"

#include "block.h"
#include "foundation/core/ceil_div.h"
#include "headroom/core/error.h"
#include "model_base.h"
#include "vocabulary_layers.h"

namespace headroom::models {

struct MaskedLanguageModel::Layers : Parts {
  std::optional<Embedding> embedding;
  std::optional<Encoder> encoder;
  nn::Linear transform;
  std::optional<nn::NormLayer> head_norm;
  std::optional<VocabularyHead> head;

  at::Tensor encode(const at::Tensor& tokens, const at::Tensor& valid, const nn::Context& context) const {
    check_tokens("masked language model", tokens, valid);
    return (*encoder)((*embedding)(tokens, 0, context), valid, context);
  }

  at::Tensor transformed(const at::Tensor& x, const nn::Context& context) const {
    return (*head_norm)(nn::activate(transform(x, context), options.mlp.activation).to(x.scalar_type()));
  }
};

MaskedLanguageModel::MaskedLanguageModel(const config::ModelOptions& o, const nn::ParameterSource& source)
    : Model(std::make_unique<Layers>(), o, config::ModelKind::masked_language_model) {
  auto& p = static_cast<Layers&>(*parts_);
  const nn::Builder build = make_builder(o, p.parameters, source);
  p.embedding.emplace(o, build);
  p.encoder.emplace(o, /*final_norm=*/true, build);
  const nn::Builder head = build.in("head");
  p.transform = nn::Linear("_transform", uniform_linear(o.d_model, o.d_model), head);
  p.head_norm.emplace(o.norm, o.norm_epsilon, o.d_model, head.in("norm"));
  p.head.emplace(o, p.embedding->matrix(), head);
}

Batch MaskedLanguageModel::example(std::int64_t rows, std::uint64_t seed) const {
  constexpr std::int64_t kEvery = 7;  // hides about 15% of the positions
  const config::ModelOptions& o = parts_->options;
  const at::Tensor tokens = random_ids(o.vocabulary_size, {rows, o.context_length}, seed);
  const at::Tensor place = at::arange(o.context_length, at::kLong);
  const at::Tensor shown = place.remainder(kEvery).ne(0);
  Batch batch;
  batch.tensors["hidden"] = tokens.masked_fill(shown, -1).to(device());
  batch.tensors["tokens"] = tokens.masked_fill(shown.logical_not(), 0).to(device());
  batch.targets.assign(static_cast<std::size_t>(rows), ceil_div(o.context_length, kEvery));
  batch.tokens = rows * o.context_length;
  return batch;
}

Loss MaskedLanguageModel::loss(const Batch& batch, Memory& /*memory*/, const nn::Context& context) const {
  return loss(batch.at("tokens"), batch.find("valid"), batch.at("hidden"), context);
}

at::Tensor MaskedLanguageModel::logits(const at::Tensor& tokens, const at::Tensor& valid,
                                       const nn::Context& context) const {
  const auto& p = static_cast<const Layers&>(*parts_);
  return p.head->logits(p.transformed(p.encode(tokens, valid, context), context), context);
}

Loss MaskedLanguageModel::loss(const at::Tensor& tokens, const at::Tensor& valid, const at::Tensor& targets,
                               const nn::Context& context) const {
  const auto& p = static_cast<const Layers&>(*parts_);
  if (targets.sizes() != tokens.sizes()) {
    fail("masked language model: targets must have the tokens' shape");
  }
  BalanceLosses losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor h = p.encode(tokens, valid, inner).reshape({-1, p.options.d_model});
  const at::Tensor all = targets.reshape({-1}), hidden = all.ge(0).nonzero().squeeze(1);
  at::Tensor cross_entropy = p.head->cross_entropy(p.transformed(h.index_select(0, hidden), context),
                                                   all.index_select(0, hidden), /*label_smoothing=*/0.0, context);
  return with_balance(std::move(cross_entropy), std::move(losses), p.options, context);
}

}  // namespace headroom::models
