#include "headroom/nn/attention.h"

#include <cmath>

#include "headroom/core/error.h"
#include "headroom/nn/linear.h"
#include "headroom/ops/attention.h"

namespace headroom::nn {
namespace {

constexpr double kHeadNormEpsilon = 1e-6;  // of QKNorm (DCMHA)

void refuse_missing_parts(const config::AttentionOptions& o) {
  if (o.score != config::Score::dot) {
    misuse("model.attention.score: {} has no implementation yet; use dot", config::name_of(o.score));
  }
  if (o.composition != config::Composition::none) {
    misuse("model.attention.composition: {} has no implementation yet; use none", config::name_of(o.composition));
  }
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t n = k.size(2);
  if (size_ + n > capacity_) {
    fail("attention cache: {} tokens do not fit beside {} of {}", n, size_, capacity_);
  }
  if (!k_.defined()) {
    k_ = at::empty({k.size(0), k.size(1), capacity_, k.size(3)}, k.options());
    v_ = at::empty({v.size(0), v.size(1), capacity_, v.size(3)}, v.options());
  }
  k_.narrow(2, size_, n).copy_(k);
  v_.narrow(2, size_, n).copy_(v);
  size_ += n;
  next_position_ += n;
  return {k_.narrow(2, 0, size_), v_.narrow(2, 0, size_)};
}

void KeyValueCache::keep_last(std::int64_t count) {
  if (count >= size_) {
    return;
  }
  for (at::Tensor* t : {&k_, &v_}) {
    t->narrow(2, 0, count).copy_(t->narrow(2, size_ - count, count).clone());
  }
  size_ = count;
}

void KeyValueCache::forget() {
  size_ = 0;
  next_position_ = 0;
}

Attention::Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build)
    : options_(options), place_(place) {
  refuse_missing_parts(options);
  projection_ = make_projection(options, {place.d_model, place.n_layers}, build);
  if (options.position == config::Position::rope) {
    rotary_ = Rotary{options.rope_channels(), options.rope_base};
  }
  if (options.position == config::Position::relative) {
    const double std = std::sqrt(2.0 / static_cast<double>(place.n_layers * place.d_model));
    const std::int64_t shape[] = {place.d_model, options.n_heads, options.d_head};
    w_pos_ = options.projection == config::Projection::dense ? build.truncated_normal("w_pos", shape, std)
                                                             : build.normal("w_pos", shape, std);
  }
  if (options.position_bias) {
    u_ = build.constant("u", {options.n_heads, options.d_head}, 0.0);
    v_ = build.constant("v", {options.n_heads, options.d_head}, 0.0);
  }
  if (options.scale == config::Scale::learned) {
    scale_ = build.constant("scale", {1}, 1.0 / std::sqrt(static_cast<double>(options.d_head)));
  }
  if (options.qk_norm) {
    q_norm_ = build.constant("q_norm", {options.d_head}, 1.0);
    k_norm_ = build.constant("k_norm", {options.d_head}, 1.0);
  }
}

// Row c is p(delta) w_pos for delta = c - (S - 1): [H, C, e], C as ops::AttentionInputs wants it.
at::Tensor Attention::relative_offsets(std::int64_t n_queries, std::int64_t n_keys, const Context& context) const {
  const std::int64_t n = place_.causal ? n_keys : n_keys + n_queries - 1;
  const at::Tensor p = sinusoids(1 - n_keys, n, place_.d_model, options_.rope_base, w_pos_.options());
  return linear(p, w_pos_, {}, context).view({n, options_.n_heads, options_.d_head}).transpose(0, 1);
}

at::Tensor Attention::operator()(const AttentionInput& input, const Context& context) const {
  const at::Tensor& source = input.source.defined() ? input.source : input.x;
  Heads heads = projection_->project(input.x, source, context);
  at::Tensor &q = heads.q, &k = heads.k;
  if (q_norm_.defined()) {
    q = at::rms_norm(q, q_norm_.sizes(), to_compute(q_norm_, context), kHeadNormEpsilon);
    k = at::rms_norm(k, k_norm_.sizes(), to_compute(k_norm_, context), kHeadNormEpsilon);
  }
  if (rotary_) {
    const std::int64_t first = input.cache != nullptr ? input.cache->next_position() : 0;
    q = (*rotary_)(q, first + source.size(1) - input.x.size(1));
    k = (*rotary_)(k, first);
  }
  if (input.cache != nullptr) {
    std::tie(heads.k, heads.v) = input.cache->append(heads.k, heads.v);
  }
  ops::AttentionInputs in{.q = q, .k = heads.k, .v = heads.v};
  in.mask = {.causal = place_.causal, .window = place_.window, .valid_keys = input.valid_keys};
  in.scale = 1.0 / std::sqrt(static_cast<double>(options_.d_head));
  if (scale_.defined()) {
    in.q = q * to_compute(scale_, context);
    in.scale = 1.0;
  }
  if (w_pos_.defined()) {
    in.r = relative_offsets(q.size(2), heads.k.size(2), context);
    in.q_position = in.q;
    if (u_.defined()) {
      const auto biased = [&](const at::Tensor& bias) {
        const at::Tensor sum = q + to_compute(bias, context).unsqueeze(1);
        return scale_.defined() ? sum * to_compute(scale_, context) : sum;
      };
      in.q = biased(u_);
      in.q_position = biased(v_);
    }
  }
  at::Tensor o;
  if (context.trace != nullptr) {
    o = ops::attention_reference(in, &(*context.trace)[context.scope + "probs"]);
  } else {
    o = ops::attention(in, context.implementation);
  }
  return projection_->combine(o, heads, context);
}

}  // namespace headroom::nn
