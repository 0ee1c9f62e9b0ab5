#include "headroom/nn/attention.h"

#include <algorithm>

#include "engine/nn/linear.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/ops/attention.h"

namespace headroom::nn {
namespace {

void check_place(const config::AttentionOptions& o, const AttentionPlace& place) {
  if (place.cross && (o.position->has_distances() || place.causal || place.window > 0)) {
    user_error(
        "model.attention: cross-attention has no distances between its two sequences: position must be none, learned "
        "or sinusoidal, without a causal mask or a window");
  }
  if (place.cross && o.of<config::OutputGateOptions>().exclusive) {
    user_error(
        "model.attention.exclusive: must be false in cross-attention, whose queries have no values of their own");
  }
  if (!place.causal && place.window > 0) {
    user_error("model.attention.window: must be 0 without a causal mask, got {}", place.window);
  }
  if (!place.causal && o.position->needs_causal()) {
    user_error(
        "model.attention.position: must not be \"{}\" without a causal mask: its bias is defined for earlier keys",
        o.position.name());
  }
}

void check_recurrence(const config::AttentionOptions& o, const AttentionPlace& place) {
  if (o.score->is_recurrent() && (place.cross || !place.causal || place.memory_length > 0)) {
    user_error(
        "model.attention: score: must not be \"{}\" in cross-attention, without a causal mask or with memory: its "
        "state needs tokens in order",
        o.score.name());
  }
}

void observe_heads(Heads& heads, const Context& context) {
  if (heads.q.defined()) {
    heads.q = context.observe("q", heads.q);
  }
  for (std::size_t r = 0; r < heads.keys.size(); ++r) {
    heads.keys[r] = context.observe(r == 0 ? "k" : fmt::format("k{}", r + 1), heads.keys[r]);
  }
  if (heads.v.defined()) {
    heads.v = context.observe("v", heads.v);
  }
}

}  // namespace

template <class Make>
std::map<std::string, Make, std::less<>>& factories() {
  static std::map<std::string, Make, std::less<>> table;  // constructed when the first part registers itself
  return table;
}

template std::map<std::string, MakeProjection, std::less<>>& factories();
template std::map<std::string, MakePosition, std::less<>>& factories();
template std::map<std::string, MakeScore, std::less<>>& factories();
template std::map<std::string, MakeComposition, std::less<>>& factories();
template std::map<std::string, MakeOutputGate, std::less<>>& factories();

Attention::Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build)
    : options_(options), place_(place) {
  check_place(options, place);
  check_recurrence(options, place);
  const LayerInit init{.d_model = place.d_model, .n_layers = place.n_layers, .layer = place.layer};
  projection_ = factory_of<MakeProjection>(options.projection.name())(options, init, build);
  position_ = factory_of<MakePosition>(options.position.name())(options, init, build);
  const ScorePlace score_place{.n_positions = place.memory_length + place.context_length,
                               .context_length = place.context_length,
                               .rotary = position_->rotary(),
                               .init = {place.d_model, place.n_layers}};
  score_ = factory_of<MakeScore>(options.score.name())(options, score_place, build);
  if (options.qk_norm) {
    q_norm_ = build.constant("q_norm", {options.d_head}, 1.0);
    if (!shares()) {
      k_norm_ = build.constant("k_norm", {options.d_head}, 1.0);
    }
  }
  composition_ = factory_of<MakeComposition>(options.composition.name())(options, init, build);
  gate_ = factory_of<MakeOutputGate>(options.gate_output.name())(options, init, build);
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
                                      .valid_keys = input.valid_keys,
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

void Attention::normalise_and_rotate(Heads& heads, const c10::SymInt& before, std::span<AttentionCache* const> caches,
                                     const Context& context) const {
  if (q_norm_.defined()) {
    if (heads.q.defined()) {
      heads.q = at::rms_norm(heads.q, q_norm_.sizes(), to_compute(q_norm_, context), options_.qk_norm_epsilon);
    }
    for (at::Tensor& k : heads.keys) {
      k = at::rms_norm(k, k_norm_.sizes(), to_compute(k_norm_, context), options_.qk_norm_epsilon);
    }
  }
  const std::optional<Rotary> rotary = position_->rotary();
  if (!rotary) {
    return;
  }
  if (!caches.empty()) {
    const std::int64_t read = shares() ? heads.q.size(2) : 0;  // tokens that the shared caches are ahead
    std::vector<std::int64_t> first =
        transformed(caches, [&](const AttentionCache* cache) { return cache->next_position() - read; });
    heads.q = rotary->rotate_rows(heads.q, first);
    for (at::Tensor& k : heads.keys) {
      k = rotary->rotate_rows(k, first);
    }
    return;
  }
  if (heads.q.defined()) {
    heads.q = (*rotary)(heads.q, before);
  }
  for (at::Tensor& k : heads.keys) {
    k = (*rotary)(k, 0);
  }
}

ScoreCall Attention::score_call(const Queries& queries) const {
  ScoreCall call;
  call.valid_queries = queries.valid_queries;
  // the default, the last T keys, would belong to another sequence
  if (place_.cross && !queries.valid_queries) {
    call.valid_queries =
        at::ones_symint({queries.x.sym_size(0), queries.x.sym_size(1)}, queries.x.options().dtype(at::kBool));
  }
  return call;
}

std::vector<at::Tensor*> Attention::KeysValues::tensors() {
  std::vector<at::Tensor*> all;
  for (at::Tensor& key : keys) {
    all.push_back(&key);
  }
  for (at::Tensor* tensor : {&v, &factors, &features, &score_features}) {
    if (tensor->defined()) {
      all.push_back(tensor);
    }
  }
  return all;
}

Attention::KeysValues Attention::keys_values(const Heads& heads, const at::Tensor& source,
                                             const Context& context) const {
  at::Tensor factors;
  if (composition_ != nullptr) {  // maps of a layer that shares keys have no factors of keys: [B, 1, S, 0]
    factors = shares() ? heads.keys[0].narrow(1, 0, 1).narrow(3, 0, 0) : composition_->key_factors(source, context);
  }
  return {.keys = heads.keys,
          .v = heads.v,
          .factors = factors,
          .features = position_->key_features(source, context),
          .score_features = score_->key_features(source, context)};
}

void Attention::read_source(const at::Tensor& source, const std::optional<at::Tensor>& valid, AttentionCache& cache,
                            const Context& context) const {
  context.show("source", [&] { return source; });
  Heads heads = projection_->project({.x = {}, .source = source, .source_value = source, .cross = true}, context);
  normalise_and_rotate(heads, 0, {}, context);
  observe_heads(heads, context);
  const KeysValues tokens = keys_values(heads, source, context);
  cache.source() = tokens.keys;
  cache.source().push_back(tokens.v);
  cache.source().push_back(tokens.factors);
  cache.valid_source() = valid;
}

ops::AttentionInputs Attention::operator_inputs(const Queries& queries, const Heads& operands, const KeysValues& tokens,
                                                const Context& context) const {
  ops::AttentionInputs in{.q = operands.q, .k = operands.keys[0], .v = operands.v};
  in.mask = {.causal = place_.causal, .window = place_.window, .valid_keys = queries.valid_keys};
  position_->add_to(in, tokens.features, queries.cache, context);
  if (queries.key_bias.defined()) {
    in.bias = in.bias ? *in.bias + queries.key_bias : queries.key_bias;
  }
  if (composition_ != nullptr) {
    Composition::Maps maps = composition_->maps(queries.x, tokens.factors, context);
    if (maps.pre || maps.post) {
      context.show("key_map", [&] { return head_matrices(maps, MapSide::key, in.q.size(1)); });
      context.show("query_map", [&] { return head_matrices(maps, MapSide::query, in.q.size(1)); });
      context.show("key_terms", [&] { return head_terms(maps, MapSide::key, in.q.size(1)); });
      context.show("query_terms", [&] { return head_terms(maps, MapSide::query, in.q.size(1)); });
    }
    in.pre = std::move(maps.pre);
    in.post = std::move(maps.post);
    in.difference = std::move(maps.difference);
  }
  return in;
}

at::Tensor Attention::attend(const Queries& queries, KeysValues tokens, const Context& context) const {
  ScoreCall call = score_call(queries);
  if (queries.cache != nullptr && !place_.cross) {
    tokens = append_to_cache(std::move(tokens), *queries.cache, call);
  }
  if (queries.shared_keys != nullptr && !shares()) {
    const std::int64_t size = queries.cache == nullptr ? 0 : tokens.keys[0].size(2);  // unused for whole sequences
    *queries.shared_keys = {.k = tokens.keys[0], .v = tokens.v, .begin = 0, .size = size};
  }
  Heads operands{.q = queries.q, .keys = tokens.keys, .v = tokens.v};
  projection_->expand(operands, /*decoding=*/queries.cache != nullptr, context);
  call.features = tokens.score_features;
  call.more_keys.assign(operands.keys.begin() + 1, operands.keys.end());
  const at::Tensor o = (*score_)(operator_inputs(queries, operands, tokens, context), call, context);
  return projection_->results(o, operands, context);
}

at::Tensor Attention::gated(at::Tensor o, Heads& heads, const AttentionInput& input, const Context& context) const {
  if (const at::Tensor gate = score_->gate(o, input.x, context); gate.defined()) {
    heads.gate = heads.gate.defined() ? heads.gate * gate : gate;
  }
  const bool exclusive = options_.of<config::OutputGateOptions>().exclusive;
  if (heads.gate.defined()) {
    context.show("gate", [&] { return heads.gate; });
  }
  if (exclusive || heads.gate.defined()) {
    o = context.observe("value_sum", std::move(o));
  }
  if (exclusive) {
    const c10::SymInt t = input.x.sym_size(1);
    o = exclude_own_values(o, heads.v.narrow_symint(2, heads.v.sym_size(2) - t, t), context);
  }
  if (heads.gate.defined()) {
    o = o * heads.gate;
  }
  return o;
}

at::Tensor Attention::operator()(const AttentionInput& input, const Context& context) const {
  const bool decodes = !input.caches.empty();
  if (shares() && input.shared_keys == nullptr) {
    fail("attention: share_kv must be 0 in a layer by itself, got {}", options_.share_kv);
  }
  if (!shares() && input.shared_keys != nullptr) {
    input.shared_keys->resize(std::max<std::size_t>(input.caches.size(), 1));
  }
  if (decodes && static_cast<std::int64_t>(input.caches.size()) != input.x.size(0)) {
    fail("attention: decoding needs one cache per row, got {} for {} rows", input.caches.size(), input.x.size(0));
  }
  const at::Tensor& source = input.source.defined() ? input.source : input.x;
  const bool reads_source = !shares() && !(decodes && place_.cross);
  context.show("x", [&] { return input.x; });
  if (reads_source) {
    context.show("source", [&] { return source; });
    if (input.source_value.defined()) {
      context.show("source_value", [&] { return input.source_value; });
    }
  }
  Heads heads = project(input, reads_source ? source : at::Tensor(), context);
  if (reads_source) {
    score_->prepare(heads, {source, input.valid_keys, input.caches}, context);
  }
  normalise_and_rotate(heads, source.sym_size(1) - input.x.sym_size(1), input.caches, context);
  if (shares() && !decodes) {
    heads.keys = {input.shared_keys->at(0).k};
    heads.v = input.shared_keys->at(0).v;
  }
  observe_heads(heads, context);
  at::Tensor o = decodes ? can_batch_rows(heads, context) ? attend_batched(input, heads, context)
                                                          : attend_by_row(input, heads, context)
                         : attend({.x = input.x,
                                   .q = heads.q,
                                   .valid_keys = input.valid_keys,
                                   .valid_queries = input.valid_queries,
                                   .key_bias = heads.key_bias,
                                   .cache = nullptr,
                                   .shared_keys = input.shared_entry(0)},
                                  keys_values(heads, source, context), context);
  if (composition_ != nullptr) {
    o = composition_->results(o, context);
  }
  o = context.observe("o", gated(std::move(o), heads, input, context));
  return context.observe("out", projection_->combine(o, heads, context));
}

}  // namespace headroom::nn
