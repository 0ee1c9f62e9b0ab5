#include "headroom/models/classifier.h"

#include <array>
#include <optional>

#include "builder.h"
#include "embedding.h"
#include "encoder.h"
#include "example.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"

namespace headroom::models {

struct Classifier::Parts {
  config::ModelOptions options;
  nn::Parameters parameters;
  std::optional<Embedding> embedding;
  std::optional<Encoder> encoder;
  nn::Linear up, down;

  // [B, d]: the mean of the final norm's result over `length` positions, those beyond the tokens being padding.
  at::Tensor features(const at::Tensor& tokens, std::int64_t length, const nn::Context& context) const {
    const at::Tensor valid = tokens.ne(options.padding_token);
    const at::Tensor h = (*encoder)((*embedding)(tokens, 0, context), valid, context);
    const at::Tensor kept = h * valid.to(h.scalar_type()).unsqueeze(2);
    return kept.sum(1) / static_cast<double>(length);
  }

  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& second, std::array<std::int64_t, 2> lengths,
                    const nn::Context& context) const {
    if (second.defined() != options.paired) {
      fail("classifier: a second sequence belongs to pairs only");
    }
    at::Tensor f = features(tokens, lengths[0], context);
    if (options.paired) {
      nn::Context other = context;
      if (other.random) {
        other.random->seed = mix(other.random->seed, "second");  // the two share no masks
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

Classifier::Classifier(const config::ModelOptions& o, const nn::Beginning& beginning)
    : parts_(std::make_unique<Parts>()) {
  if (o.kind != config::ModelKind::classifier) {
    user_error("model.kind: {} is no classifier", config::name_of(o.kind));
  }
  Parts& p = *parts_;
  const nn::Builder build = make_builder(o, p.parameters, beginning);
  p.options = o;
  p.embedding.emplace(o, build);
  p.encoder.emplace(o, /*final_norm=*/true, build);
  std::int64_t width = o.d_model * (o.paired ? 4 : 1);
  if (o.d_head_hidden > 0) {
    p.up = nn::Linear("_up", uniform_linear(width, o.d_head_hidden), build.in("head"));
    width = o.d_head_hidden;
  }
  p.down = nn::Linear("_down", uniform_linear(width, o.n_classes, o.head_bias), build.in("head"));
}

Classifier::~Classifier() = default;
Classifier::Classifier(Classifier&&) noexcept = default;

const config::ModelOptions& Classifier::options() const {
  return parts_->options;
}
nn::Parameters& Classifier::parameters() {
  return parts_->parameters;
}
const nn::Parameters& Classifier::parameters() const {
  return parts_->parameters;
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
  return parts_->logits(batch.at("tokens"), batch.find("second"), {length, length}, context);
}

at::Tensor Classifier::logits(const at::Tensor& tokens, const at::Tensor& second, const nn::Context& context) const {
  return parts_->logits(tokens, second, {tokens.size(-1), second.defined() ? second.size(-1) : 0}, context);
}

}  // namespace headroom::models
