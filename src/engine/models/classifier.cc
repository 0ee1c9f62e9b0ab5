#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "block.h"
#include "foundation/core/random.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
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

struct VisionTransformer::Layers : Parts {
  at::Tensor position;
  std::optional<Encoder> encoder;
  nn::Linear patch, up, down;

  // Cuts [B, C, image, image] into [B, N, C P P].
  at::Tensor patches(const at::Tensor& images) const {
    const std::int64_t p = options.patch_size, n = options.image_size / p, c = options.image_channels;
    return images.to(patch.w.scalar_type())
        .reshape({-1, c, n, p, n, p})
        .permute({0, 2, 4, 1, 3, 5})
        .reshape({-1, n * n, c * p * p});
  }
};

VisionTransformer::VisionTransformer(const config::ModelOptions& o, const nn::ParameterSource& source)
    : ClassModel(std::make_unique<Layers>(), o, config::ModelKind::vision) {
  const std::int64_t patches = o.patches(), side = o.image_size / o.patch_size;
  auto& p = static_cast<Layers&>(*parts_);
  const nn::Builder build = make_builder(o, p.parameters, source);
  const std::int64_t patch_width = o.image_channels * o.patch_size * o.patch_size;
  p.options.context_length = patches;
  const auto deviation = [](std::int64_t fan_in) { return 1.0 / std::sqrt(static_cast<double>(fan_in)); };
  const auto linear = [&](std::int64_t in, std::int64_t out) -> nn::Linear::Options {
    return {.in = in, .out = out, .init = nn::Distribution::truncated_normal(deviation(in))};
  };
  p.patch = nn::Linear("", linear(patch_width, o.d_model), build.in("patch"));
  if (o.attention.position->added_vectors() == config::AddedVectors::learned) {
    p.position = build.embedding("position", {patches, o.d_model}, nn::Distribution::normal(deviation(o.d_model)));
  } else if (o.attention.position->added_vectors() == config::AddedVectors::fixed) {
    p.position = grid_sinusoids(side, o.d_model, o.attention.of<config::PositionOptions>().rope_base, build.options());
  }
  p.encoder.emplace(p.options, /*final_norm=*/true, build);
  const nn::Builder head = build.in("head");
  std::int64_t width = o.d_model;
  if (o.d_head_hidden > 0) {
    p.up = nn::Linear("_up", linear(width, o.d_head_hidden), head);
    width = o.d_head_hidden;
  }
  p.down.w = head.constant("w_down", {width, o.n_classes}, 0.0);
  if (o.head_bias) {
    p.down.b = head.constant("b_down", {o.n_classes}, 0.0);
  }
}

Batch VisionTransformer::example(std::int64_t rows, std::uint64_t seed) const {
  constexpr std::int64_t kShades = 256;
  const config::ModelOptions& o = parts_->options;
  const at::Tensor pixels = random_ids(kShades, {rows, o.image_channels, o.image_size, o.image_size}, seed);
  Batch batch;
  batch.tensors["images"] = (pixels.to(at::kFloat) / static_cast<double>(kShades - 1)).to(device());
  batch.tensors["label"] = random_ids(o.n_classes, {rows}, seed + 1).to(device());
  batch.targets.assign(static_cast<std::size_t>(rows), 1);
  batch.tokens = rows * o.context_length;
  return batch;
}

at::Tensor VisionTransformer::class_logits(const Batch& batch, const nn::Context& context) const {
  return logits(batch.at("images"), context);
}

at::Tensor VisionTransformer::logits(const at::Tensor& images, const nn::Context& context) const {
  const auto& p = static_cast<const Layers&>(*parts_);
  const std::int64_t c = p.options.image_channels, size = p.options.image_size;
  if (images.dim() != 4 || images.size(1) != c || images.size(2) != size || images.size(3) != size) {
    fail("vision Transformer: images must be [B, {}, {}, {}], got {}", c, size, size, c10::str(images.sizes()));
  }
  at::Tensor h = p.patch(p.patches(images), context).to(p.patch.w.scalar_type());
  if (p.position.defined()) {
    h = h + p.position;
  }
  h = (*p.encoder)(nn::dropout(h, p.options.dropout, context, "embed"), {}, context);
  at::Tensor f = h.mean(1);
  if (p.up.defined()) {
    f = p.up(f, context).tanh();
  }
  return p.down(f, context);
}

at::Tensor grid_sinusoids(std::int64_t side, std::int64_t d_model, double base, at::TensorOptions options) {
  if (d_model % 4 != 0) {
    user_error("model.d_model: must be a multiple of 4 with the fixed positions of an image, got {}", d_model);
  }
  if (options.device().is_meta()) {
    return at::empty({side * side, d_model}, options);
  }
  const at::TensorOptions wide(at::kDouble);
  const std::int64_t n = d_model / 4;
  const at::Tensor fraction = at::arange(n, wide) / static_cast<double>(std::max<std::int64_t>(1, n - 1));
  const at::Tensor angle = at::arange(side, wide).unsqueeze(1) * at::pow(at::full({}, base, wide), -fraction);
  const at::Tensor column = angle.unsqueeze(0).expand({side, side, n}),
                   row = angle.unsqueeze(1).expand({side, side, n});
  return at::cat({column.sin(), column.cos(), row.sin(), row.cos()}, 2).view({side * side, d_model}).to(options);
}

}  // namespace headroom::models
