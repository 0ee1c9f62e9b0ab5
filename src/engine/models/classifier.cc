#include "headroom/models/classifier.h"

#include <array>
#include <optional>

#include "block.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "model_base.h"
#include "vocabulary_layers.h"

namespace headroom::models {
namespace {

at::Tensor cross_entropy(const at::Tensor& logits, const Batch& batch) {
  const auto with = [&](const at::Tensor& label, std::int64_t reduction) {
    return at::cross_entropy_loss(logits, label, {}, reduction, /*ignore_index=*/-100, batch.label_smoothing);
  };
  const at::Tensor other = batch.find("other_label");
  if (!other.defined()) {
    return with(batch.at("label"), at::Reduction::Mean);
  }
  const at::Tensor own = with(batch.at("label"), at::Reduction::None);
  return at::lerp(with(other, at::Reduction::None), own, batch.at("label_share").to(own.scalar_type())).mean();
}

}  // namespace

Loss ClassModel::loss(const Batch& batch, Memory& /*memory*/, const nn::Context& context) const {
  BalanceLosses losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor logits = class_logits(batch, inner);
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  return with_balance(cross_entropy(wide, batch), std::move(losses), options(), context);
}

struct Classifier::Layers : Parts {
  std::optional<Embedding> embedding;
  std::optional<Encoder> encoder;
  nn::Linear up, down;

  // Returns [B, d]: the mean over `length` positions of the final norm's output. Positions beyond the tokens are
  // padding.
  at::Tensor features(const at::Tensor& tokens, std::int64_t length, const nn::Context& context) const {
    const at::Tensor valid = tokens.ne(options.padding_token);
    const at::Tensor h = (*encoder)((*embedding)(tokens, 0, context), valid, context);
    const at::Tensor masked = h * valid.to(h.scalar_type()).unsqueeze(2);
    return masked.sum(1) / static_cast<double>(length);
  }

  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& second, std::array<std::int64_t, 2> lengths,
                    const nn::Context& context) const {
    if (second.defined() != options.paired) {
      fail("classifier: second must be given if and only if model.paired is set");
    }
    at::Tensor f = features(tokens, lengths[0], context);
    if (options.paired) {
      nn::Context other = context;
      if (other.random) {
        other.random->seed = mix(other.random->seed, "second");  // different dropout masks for the second text
      }
      const at::Tensor g = features(second, lengths[1], other);
      f = at::cat({f, g, f * g, f - g}, 1);
    }
    if (up.defined()) {
      f = nn::activate(up(f, context), options.head_activation);
    }
    return down(f, context);
  }
};

Classifier::Classifier(const config::ModelOptions& o, const nn::ParameterSource& source)
    : ClassModel(std::make_unique<Layers>(), o, config::ModelKind::classifier) {
  auto& p = static_cast<Layers&>(*parts_);
  const nn::Builder build = make_builder(o, p.parameters, source);
  p.embedding.emplace(o, build);
  p.encoder.emplace(o, /*final_norm=*/true, build);
  std::int64_t width = o.d_model * (o.paired ? 4 : 1);
  if (o.d_head_hidden > 0) {
    p.up = nn::Linear("_up", uniform_linear(width, o.d_head_hidden), build.in("head"));
    width = o.d_head_hidden;
  }
  p.down = nn::Linear("_down", uniform_linear(width, o.n_classes, o.head_bias), build.in("head"));
}

Batch Classifier::example(std::int64_t rows, std::uint64_t seed) const {
  const config::ModelOptions& o = parts_->options;
  Batch batch;
  batch.tensors["tokens"] = random_ids(o.vocabulary_size, {rows, o.context_length}, seed).to(device());
  if (o.paired) {
    batch.tensors["second"] = random_ids(o.vocabulary_size, {rows, o.context_length}, seed + 1).to(device());
  }
  batch.tensors["label"] = random_ids(o.n_classes, {rows}, seed + 2).to(device());
  batch.targets.assign(static_cast<std::size_t>(rows), 1);
  batch.tokens = rows * o.context_length * (o.paired ? 2 : 1);
  return batch;
}

at::Tensor Classifier::class_logits(const Batch& batch, const nn::Context& context) const {
  const std::int64_t length = parts_->options.context_length;
  return static_cast<const Layers&>(*parts_).logits(batch.at("tokens"), batch.find("second"), {length, length},
                                                    context);
}

at::Tensor Classifier::logits(const at::Tensor& tokens, const at::Tensor& second, const nn::Context& context) const {
  const std::int64_t second_length = second.defined() ? second.size(-1) : 0;
  return static_cast<const Layers&>(*parts_).logits(tokens, second, {tokens.size(-1), second_length}, context);
}

}  // namespace headroom::models
