#include "headroom/nn/attention.h"

#include <algorithm>

#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/nn/linear.h"
#include "headroom/ops/attention.h"

namespace headroom::nn {
namespace {

void refuse_other_sequence(const config::AttentionOptions& o, const AttentionPlace& place) {
  if (place.cross && (o.position->has_distances() || place.causal || place.window > 0)) {
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

// Heads' results [B, H, T, w], by token.
void trace_results(const at::Tensor& o, const char* name, const Context& context) {
  if (context.trace != nullptr) {
    (*context.trace)[context.scope + name] = o.transpose(1, 2);
  }
}

}  // namespace

Attention::Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build)
    : options_(options), place_(place) {
  refuse_other_sequence(options, place);
  projection_ = factory_of<MakeProjection>(options.projection.name())(options, {place.d_model, place.n_layers}, build);
  position_ = factory_of<MakePosition>(options.position.name())(options, {place.d_model, place.n_layers}, build);
  const ScorePlace score_place{.n_positions = place.memory_length + place.context_length,
                               .context_length = place.context_length,
                               .rotary = position_->rotary()};
  score_ = factory_of<MakeScore>(options.score.name())(options, score_place, build);
  if (options.qk_norm) {
    q_norm_ = build.constant("q_norm", {options.d_head}, 1.0);
    k_norm_ = build.constant("k_norm", {options.d_head}, 1.0);
  }
  composition_ = factory_of<MakeComposition>(options.composition.name())(options, place.d_model, build);
  gate_ = factory_of<MakeOutputGate>(options.gate_output.name())(options, {place.d_model, place.n_layers}, build);
}

AttentionCache Attention::make_cache() const {
  const std::int64_t all = place_.memory_length + place_.context_length;
  const bool slides = place_.window > 0 && place_.window < all;
  return AttentionCache(slides ? place_.window : all, slides);
}

Heads Attention::project(const AttentionInput& input, const at::Tensor& source, const Context& context) const {
  Heads heads = projection_->project({.x = input.x,
                                      .source = source,
                                      .source_value = input.source_value.defined() ? input.source_value : source,
                                      .cross = place_.cross,
                                      .valid_queries = input.valid_queries,
                                      .router_noise = input.router_noise,
                                      .router_slots = input.router_slots},
                                     context);
  if (gate_ != nullptr) {
    const at::Tensor gate = (*gate_)(input.x, heads, context);
    heads.gate = heads.gate.defined() ? heads.gate * gate : gate;
  }
  return heads;
}

void Attention::normalise_and_rotate(Heads& heads, const AttentionCache* cache, const Context& context) const {
  if (q_norm_.defined()) {
    heads.q = at::rms_norm(heads.q, q_norm_.sizes(), to_compute(q_norm_, context), options_.qk_norm_epsilon);
    for (at::Tensor& k : heads.keys) {
      k = at::rms_norm(k, k_norm_.sizes(), to_compute(k_norm_, context), options_.qk_norm_epsilon);
    }
  }
  if (const std::optional<Rotary> rotary = position_->rotary()) {
    const std::int64_t first = cache != nullptr ? cache->next_position() : 0;
    heads.q = (*rotary)(heads.q, heads.keys[0].sym_size(2) - heads.q.sym_size(2) + first);
    for (at::Tensor& k : heads.keys) {
      k = (*rotary)(k, first);
    }
  }
}

ScoreCall Attention::call_of(const AttentionInput& input) const {
  ScoreCall call;
  call.valid_queries = input.valid_queries;
  if (place_.cross && !input.valid_queries) {  // the keys are no queries
    call.valid_queries =
        at::ones_symint({input.x.sym_size(0), input.x.sym_size(1)}, input.x.options().dtype(at::kBool));
  }
  return call;
}

std::vector<at::Tensor*> Attention::Seen::tensors() {
  std::vector<at::Tensor*> all;
  for (at::Tensor& key : keys) {
    all.push_back(&key);
  }
  for (at::Tensor* tensor : {&v, &factors, &marks}) {
    if (tensor->defined()) {
      all.push_back(tensor);
    }
  }
  return all;
}

Attention::Seen Attention::seen_of(const Heads& heads, const at::Tensor& source, const Context& context) const {
  return {.keys = heads.keys,
          .v = heads.v,
          .factors = composition_ != nullptr ? composition_->key_factors(source, context) : at::Tensor(),
          .marks = position_->marks(source, context)};
}

Attention::Seen Attention::source_of(Seen fresh, AttentionCache& cache) {
  std::vector<at::Tensor>& kept = cache.source();
  if (kept.empty()) {
    kept = fresh.keys;
    kept.push_back(fresh.v);
    kept.push_back(fresh.factors);
    return fresh;
  }
  return {.keys = {kept.begin(), kept.end() - 2}, .v = kept[kept.size() - 2], .factors = kept.back(), .marks = {}};
}

Attention::Seen Attention::look_back(Seen fresh, AttentionCache& cache, ScoreCall& call) const {
  if (!place_.causal) {
    fail("attention: only causal layers decode token by token");
  }
  const std::int64_t n = fresh.keys[0].size(2);
  if (options_.score->state_numbers(options_) && place_.memory_length == 0) {
    call.first_position = call.first_index = cache.next_position();
    call.linear = &cache.linear();
    cache.count(n);
    return fresh;
  }
  const std::int64_t read = cache.next_position() + n, known = cache.first_index() + cache.size() + n;
  const std::vector<at::Tensor*> tensors = fresh.tensors();
  std::vector<at::Tensor> all;
  for (const at::Tensor* tensor : tensors) {
    all.push_back(*tensor);
  }
  all = cache.append(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    *tensors[i] = all[i];
  }
  call.first_position = read - fresh.keys[0].size(2);
  call.first_index = known - fresh.keys[0].size(2);
  return fresh;
}

ops::AttentionInputs Attention::assemble(const Heads& heads, const Seen& seen, const AttentionInput& input,
                                         const Context& context) const {
  ops::AttentionInputs in{.q = heads.q, .k = heads.keys[0], .v = heads.v};
  in.mask = {.causal = place_.causal, .window = place_.window, .valid_keys = input.valid_keys};
  position_->add_to(in, seen.marks, input.cache, context);
  if (composition_ != nullptr) {
    Composition::Maps maps = composition_->maps(input.x, seen.factors, context);
    in.pre = std::move(maps.pre);
    in.post = std::move(maps.post);
    if (context.trace != nullptr) {
      (*context.trace)[context.scope + "key_map"] = composition_->key_maps(seen.factors);
    }
  }
  return in;
}

at::Tensor Attention::score(ops::AttentionInputs in, ScoreCall call, const AttentionInput& input,
                            const Context& context) const {
  ops::AttentionTrace trace;
  call.trace = context.trace != nullptr ? &trace : nullptr;
  at::Tensor o = (*score_)(std::move(in), call, context);
  if (context.trace != nullptr) {
    trace_attention(trace, input, context);
  }
  return o;
}

at::Tensor Attention::operator()(const AttentionInput& input, const Context& context) const {
  const at::Tensor& source = input.source.defined() ? input.source : input.x;
  const bool known = place_.cross && input.cache != nullptr && !input.cache->source().empty();
  Heads heads = project(input, known ? at::Tensor() : source, context);
  normalise_and_rotate(heads, input.cache, context);
  Seen seen = known ? Seen() : seen_of(heads, source, context);
  ScoreCall call = call_of(input);
  if (place_.cross && input.cache != nullptr) {
    seen = source_of(std::move(seen), *input.cache);
  } else if (input.cache != nullptr) {
    seen = look_back(std::move(seen), *input.cache, call);
  }
  heads.keys = seen.keys;
  heads.v = seen.v;
  projection_->expand(heads, /*decoding=*/input.cache != nullptr, context);
  call.more_keys.assign(heads.keys.begin() + 1, heads.keys.end());
  at::Tensor o = score(assemble(heads, seen, input, context), std::move(call), input, context);
  o = projection_->results(o, heads, context);
  trace_results(o, "value_sum", context);
  if (heads.gate.defined()) {
    o = o * heads.gate;
    trace_results(o, "gated", context);
  }
  return projection_->combine(o, heads, context);
}

}  // namespace headroom::nn
