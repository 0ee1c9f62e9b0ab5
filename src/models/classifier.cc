#include "headroom/models/classifier.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <optional>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/models/block.h"

namespace headroom::models {

struct Classifier::Parts {
  config::ModelOptions options;
  ClassifierOptions head;
  nn::Parameters parameters;
  at::Tensor embed, position, w_up, b_up, w_down, b_down;
  std::vector<Block> blocks;
  std::optional<nn::NormLayer> norm_f;

  // [B, d]: the mean of the final norm's result over all positions.
  at::Tensor features(const at::Tensor& tokens, const nn::Context& context) const {
    const std::int64_t t = tokens.size(1);
    if (t > options.context_length) {
      fail("classifier: a sequence must hold at most context_length={} tokens, got {}", options.context_length, t);
    }
    const at::Tensor valid = tokens.ne(head.padding_token);
    at::Tensor h = nn::dropout(at::embedding(embed, tokens) + position.narrow(0, 0, t), options.dropout, context);
    for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
      BlockInput input;
      input.h = h;
      input.valid_keys = valid;
      h = blocks[layer](input, context.in(fmt::format("layer{}", layer)));
    }
    const at::Tensor kept = (*norm_f)(h)*valid.to(h.scalar_type()).unsqueeze(2);
    return kept.sum(1) / static_cast<double>(t);
  }
};

Classifier::Classifier(const config::ModelOptions& o, const ClassifierOptions& head, std::uint64_t seed,
                       at::TensorOptions tensor_options)
    : parts_(std::make_unique<Parts>()) {
  if (o.memory_length > 0 || o.attention.window > 0) {
    misuse("classifier: model.{} must be 0: every token sees the whole sequence",
           o.memory_length > 0 ? "memory_length" : "attention.window");
  }
  const nn::Builder build(parts_->parameters, at::make_generator<at::CPUGeneratorImpl>(seed), tensor_options);
  const double d = static_cast<double>(o.d_model);
  Parts& p = *parts_;
  p.options = o;
  p.head = head;
  p.embed = build.normal("embed", {o.vocabulary_size, o.d_model}, 1.0 / std::sqrt(d));
  p.position = build.normal("position", {o.context_length, o.d_model}, 1.0 / std::sqrt(d));
  for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
    const nn::AttentionPlace place{
        .d_model = o.d_model, .n_layers = o.n_layers, .causal = false, .context_length = o.context_length};
    p.blocks.emplace_back(o, place, build.in(fmt::format("layer{}", layer)));
  }
  p.norm_f.emplace(o.norm, o.norm_epsilon, o.d_model, build.in("norm_f"));
  const nn::Builder last = build.in("head");
  const std::int64_t width = o.d_model * (head.pair ? 4 : 1);
  const double up = 1.0 / std::sqrt(static_cast<double>(width)),
               down = 1.0 / std::sqrt(static_cast<double>(head.d_hidden));
  p.w_up = last.uniform("w_up", {width, head.d_hidden}, up);
  p.b_up = last.uniform("b_up", {head.d_hidden}, up);
  p.w_down = last.uniform("w_down", {head.d_hidden, head.n_classes}, down);
  p.b_down = last.uniform("b_down", {head.n_classes}, down);
}

Classifier::~Classifier() = default;
Classifier::Classifier(Classifier&&) noexcept = default;

nn::Parameters& Classifier::parameters() {
  return parts_->parameters;
}

at::Tensor Classifier::logits(const at::Tensor& tokens, const at::Tensor& second, const nn::Context& context) const {
  const Parts& p = *parts_;
  if (second.defined() != p.head.pair) {
    fail("classifier: a second sequence belongs to pairs only");
  }
  at::Tensor f = p.features(tokens, context);
  if (p.head.pair) {
    const at::Tensor g = p.features(second, context);
    f = at::cat({f, g, f * g, f - g}, 1);
  }
  const at::Tensor hidden = nn::activate(nn::linear(f, p.w_up, p.b_up, context), p.head.activation);
  return nn::linear(hidden, p.w_down, p.b_down, context);
}

}  // namespace headroom::models
