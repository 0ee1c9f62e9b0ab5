#include "headroom/nn/attention.h"

#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/nn/linear.h"
#include "headroom/ops/attention.h"

namespace headroom::nn {
namespace {

constexpr double kHeadNormEpsilon = 1e-6;  // of QKNorm (DCMHA)

void refuse_other_sequence(const config::AttentionOptions& o, const AttentionPlace& place) {
  const bool offsets = o.position == config::Position::relative || o.position == config::Position::rope;
  if (place.cross && (offsets || place.causal || place.window > 0)) {
    misuse(
        "model.attention: cross-attention has no order between its two sequences: position must be none, learned or "
        "sinusoidal, and there is no causal mask and no window");
  }
}

void trace_attention(const ops::AttentionTrace& seen, const AttentionInput& input, const Context& context) {
  const auto note = [&](const char* name, at::Tensor value) {
    if (value.defined()) {
      if (input.valid_queries) {
        value = value.masked_fill(input.valid_queries->logical_not().unsqueeze(1).unsqueeze(3), 0.0);
      }
      (*context.trace)[context.scope + name] = value;
    }
  };
  note("scores", seen.scores);
  note("scores_composed", seen.scores_composed);
  note("probs", seen.probs);
  note("probs_composed", seen.probs_composed);
}

}  // namespace

Attention::Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build)
    : options_(options), place_(place) {
  refuse_other_sequence(options, place);
  projection_ = make_projection(options, {place.d_model, place.n_layers}, build);
  if (options.position == config::Position::rope) {
    rotary_ = Rotary{options.rope_channels(), options.rope_base};
  }
  if (options.position == config::Position::relative) {
    relative_.emplace(options, place.d_model, place.n_layers, build);
  }
  const ScorePlace score_place{.n_positions = place.memory_length + place.context_length,
                               .context_length = place.context_length,
                               .rotary = rotary_};
  score_ = make_score(options, score_place, build);
  if (options.qk_norm) {
    q_norm_ = build.constant("q_norm", {options.d_head}, 1.0);
    k_norm_ = build.constant("k_norm", {options.d_head}, 1.0);
  }
  if (options.composition != config::Composition::none) {
    composition_.emplace(options, place.d_model, build);
  }
}

AttentionCache Attention::make_cache() const {
  const std::int64_t all = place_.memory_length + place_.context_length;
  const bool slides = place_.window > 0 && place_.window < all;
  return AttentionCache(slides ? place_.window : all, slides);
}

void Attention::normalise_and_rotate(Heads& heads, const AttentionInput& input, const Context& context) const {
  if (q_norm_.defined()) {
    heads.q = at::rms_norm(heads.q, q_norm_.sizes(), to_compute(q_norm_, context), kHeadNormEpsilon);
    for (at::Tensor& k : heads.keys) {
      k = at::rms_norm(k, k_norm_.sizes(), to_compute(k_norm_, context), kHeadNormEpsilon);
    }
  }
  if (rotary_) {
    const std::int64_t first = input.cache != nullptr ? input.cache->next_position() : 0;
    heads.q = (*rotary_)(heads.q, first + heads.keys[0].size(2) - heads.q.size(2));
    for (at::Tensor& k : heads.keys) {
      k = (*rotary_)(k, first);
    }
  }
}

at::Tensor Attention::operator()(const AttentionInput& input, const Context& context) const {
  const at::Tensor& source = input.source.defined() ? input.source : input.x;
  Heads heads = projection_->project({.x = input.x,
                                      .source = source,
                                      .source_value = input.source_value.defined() ? input.source_value : source,
                                      .cross = place_.cross,
                                      .valid_queries = input.valid_queries,
                                      .router_noise = input.router_noise,
                                      .router_slots = input.router_slots},
                                     context);
  normalise_and_rotate(heads, input, context);
  std::vector<at::Tensor> kept = heads.keys;
  kept.push_back(heads.v);
  if (composition_) {
    kept.push_back(composition_->key_factors(source, context));
  }
  ScoreCall call;
  call.valid_queries = input.valid_queries;
  if (place_.cross && !input.valid_queries) {  // the keys are no queries
    call.valid_queries = at::ones({input.x.size(0), input.x.size(1)}, input.x.options().dtype(at::kBool));
  }
  if (input.cache != nullptr) {
    AttentionCache& cache = *input.cache;
    if (!place_.causal) {
      fail("attention: only causal layers decode token by token");
    }
    call.first_position = cache.next_position();
    if (score_->has_state() && place_.memory_length == 0) {
      call.first_index = cache.next_position();
      call.linear = &cache.linear();
      cache.count(input.x.size(1));
    } else {
      const std::int64_t read = cache.next_position() + input.x.size(1), known = cache.first_index() + cache.size();
      kept = cache.append(kept);
      call.first_position = read - kept[0].size(2);
      call.first_index = known + input.x.size(1) - kept[0].size(2);
    }
  }
  const std::size_t n_keys = heads.keys.size();
  ops::AttentionInputs in{.q = heads.q, .k = kept[0], .v = kept[n_keys]};
  in.mask = {.causal = place_.causal, .window = place_.window, .valid_keys = input.valid_keys};
  call.more_keys.assign(kept.begin() + 1, kept.begin() + static_cast<std::ptrdiff_t>(n_keys));
  if (relative_) {
    relative_->add_to(in, input.cache, context);
  }
  if (composition_) {
    Composition::Maps maps = composition_->maps(input.x, kept[n_keys + 1], context);
    in.pre = std::move(maps.pre);
    in.post = std::move(maps.post);
    if (context.trace != nullptr) {
      (*context.trace)[context.scope + "key_map"] = composition_->key_maps(kept[n_keys + 1]);
    }
  }
  ops::AttentionTrace seen;
  call.trace = context.trace != nullptr ? &seen : nullptr;
  const at::Tensor o = (*score_)(std::move(in), call, context);
  if (context.trace != nullptr) {
    trace_attention(seen, input, context);
  }
  return projection_->combine(o, heads, context);
}

}  // namespace headroom::nn
