#include "headroom/nn/attention.h"

#include <algorithm>
#include <iterator>

#include "engine/nn/linear.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/ops/attention.h"

namespace headroom::nn {
namespace {

void refuse_other_sequence(const config::AttentionOptions& o, const AttentionPlace& place) {
  if (place.cross && (o.position->has_distances() || place.causal || place.window > 0)) {
    user_error(
        "model.attention: cross-attention has no order between its two sequences: position must be none, learned or "
        "sinusoidal, and there is no causal mask and no window");
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

void Attention::normalise_and_rotate(Heads& heads, std::span<AttentionCache* const> caches,
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
    std::vector<std::int64_t> first;
    for (const AttentionCache* cache : caches) {
      first.push_back(cache->next_position());
    }
    heads.q = rotary->turn_rows(heads.q, first);
    for (at::Tensor& k : heads.keys) {
      k = rotary->turn_rows(k, first);
    }
    return;
  }
  heads.q = (*rotary)(heads.q, heads.keys[0].sym_size(2) - heads.q.sym_size(2));
  for (at::Tensor& k : heads.keys) {
    k = (*rotary)(k, 0);
  }
}

ScoreCall Attention::call_of(const Queries& queries) const {
  ScoreCall call;
  call.valid_queries = queries.valid_queries;
  if (place_.cross && !queries.valid_queries) {  // the keys are no queries
    call.valid_queries =
        at::ones_symint({queries.x.sym_size(0), queries.x.sym_size(1)}, queries.x.options().dtype(at::kBool));
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

void Attention::read_source(const at::Tensor& source, const std::optional<at::Tensor>& valid, AttentionCache& cache,
                            const Context& context) const {
  context.show("source", [&] { return source; });
  Heads heads = projection_->project({.x = {}, .source = source, .source_value = source, .cross = true}, context);
  normalise_and_rotate(heads, {}, context);
  observe_heads(heads, context);
  const Seen seen = seen_of(heads, source, context);
  cache.source() = seen.keys;
  cache.source().push_back(seen.v);
  cache.source().push_back(seen.factors);
  cache.valid_source() = valid;
}

Attention::Seen Attention::source_of(AttentionCache& cache) {
  const std::vector<at::Tensor>& kept = cache.source();
  if (kept.empty()) {
    fail("attention: a source must be read before queries meet it");
  }
  return {.keys = {kept.begin(), kept.end() - 2}, .v = kept[kept.size() - 2], .factors = kept.back(), .marks = {}};
}

Attention::Seen Attention::look_back(Seen fresh, AttentionCache& cache, ScoreCall& call) const {
  if (!place_.causal) {
    fail("attention: only causal layers decode token by token");
  }
  const std::int64_t n = fresh.keys[0].size(2);
  if (options_.score->state_elements(options_) && place_.memory_length == 0) {
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

ops::AttentionInputs Attention::assemble(const Queries& queries, const Heads& met, const Seen& seen,
                                         const Context& context) const {
  ops::AttentionInputs in{.q = met.q, .k = met.keys[0], .v = met.v};
  in.mask = {.causal = place_.causal, .window = place_.window, .valid_keys = queries.valid_keys};
  position_->add_to(in, seen.marks, queries.cache, context);
  if (composition_ != nullptr) {
    Composition::Maps maps = composition_->maps(queries.x, seen.factors, context);
    context.show("key_map", [&] { return head_matrices(maps, MapSide::key, in.q.size(1)); });
    context.show("query_map", [&] { return head_matrices(maps, MapSide::query, in.q.size(1)); });
    context.show("key_terms", [&] { return head_terms(maps, MapSide::key, in.q.size(1)); });
    context.show("query_terms", [&] { return head_terms(maps, MapSide::query, in.q.size(1)); });
    in.pre = std::move(maps.pre);
    in.post = std::move(maps.post);
  }
  return in;
}

at::Tensor Attention::attend(const Queries& queries, Seen seen, const Context& context) const {
  ScoreCall call = call_of(queries);
  if (queries.cache != nullptr && !place_.cross) {
    seen = look_back(std::move(seen), *queries.cache, call);
  }
  Heads met{.q = queries.q, .keys = seen.keys, .v = seen.v};
  projection_->expand(met, /*decoding=*/queries.cache != nullptr, context);
  call.more_keys.assign(met.keys.begin() + 1, met.keys.end());
  return projection_->results((*score_)(assemble(queries, met, seen, context), call, context), met, context);
}

at::Tensor Attention::attend_by_row(const AttentionInput& input, const Heads& heads, const Context& context) const {
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < input.x.size(0); ++row) {
    const auto part = [&](const at::Tensor& t) { return input.x.size(0) == 1 ? t : t.narrow(0, row, 1); };
    AttentionCache& cache = *input.caches[static_cast<std::size_t>(row)];
    const Queries queries{.x = part(input.x),
                          .q = part(heads.q),
                          .valid_keys = place_.cross ? cache.valid_source() : std::nullopt,
                          .valid_queries = {},
                          .cache = &cache};
    if (place_.cross) {
      rows.push_back(attend(queries, source_of(cache), context));
      continue;
    }
    if (const at::Tensor& offsets = input.caches[0]->offsets(); offsets.defined()) {
      cache.offsets() = offsets;  // held once for all
    }
    Heads own;
    std::transform(heads.keys.begin(), heads.keys.end(), std::back_inserter(own.keys), part);
    own.v = heads.v.defined() ? part(heads.v) : at::Tensor();
    rows.push_back(attend(queries, seen_of(own, queries.x, context), context));
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows);
}

bool Attention::rows_differ_in_keys(const AttentionInput& input, const Heads& heads, const Context& context) const {
  return heads.q.size(2) == 1 && (place_.cross || place_.causal) && score_->takes_sequences() &&
         composition_ == nullptr && !projection_->expands() && !pair_values(context) &&
         !position_->marks(input.x, context).defined();
}

at::Tensor Attention::attend_sequences(const AttentionInput& input, const Heads& heads, const Context& context) const {
  ops::AttentionInputs in{.q = heads.q};
  in.mask = {.causal = place_.causal, .window = place_.window, .valid_keys = {}};
  std::size_t most = 0;
  at::Tensor offsets;  // held once for all
  for (std::size_t row = 0; row < input.caches.size(); ++row) {
    AttentionCache& cache = *input.caches[row];
    if (place_.cross) {
      const Seen seen = source_of(cache);
      in.sequences.push_back({seen.keys[0], seen.v, 0, seen.keys[0].size(2), cache.valid_source()});
    } else {
      const AttentionCache::Held held =
          cache.append_row({heads.keys[0], heads.v}, static_cast<std::int64_t>(row), !position_->orders_keys());
      in.sequences.push_back({held.tensors[0], held.tensors[1], held.begin, held.size});
    }
    most = in.sequences[row].size > in.sequences[most].size ? row : most;
    offsets = offsets.defined() ? offsets : cache.offsets();
  }
  const ops::SequenceKeys& longest = in.sequences[most];
  in.k = longest.k.narrow(2, longest.begin, longest.size);
  in.v = longest.v.narrow(2, longest.begin, longest.size);
  input.caches[most]->offsets() = offsets;
  position_->add_to(in, {}, input.caches[most], context);
  for (AttentionCache* cache : input.caches) {
    cache->offsets() = input.caches[most]->offsets();
  }
  return (*score_)(std::move(in), {}, context);
}

at::Tensor Attention::operator()(const AttentionInput& input, const Context& context) const {
  const bool decodes = !input.caches.empty();
  if (decodes && static_cast<std::int64_t>(input.caches.size()) != input.x.size(0)) {
    fail("attention: decoding needs a cache for each row, got {} for {}", input.caches.size(), input.x.size(0));
  }
  const at::Tensor& source = input.source.defined() ? input.source : input.x;
  const bool reads_source = !(decodes && place_.cross);
  context.show("x", [&] { return input.x; });
  if (reads_source) {
    context.show("source", [&] { return source; });
  }
  Heads heads = project(input, reads_source ? source : at::Tensor(), context);
  normalise_and_rotate(heads, input.caches, context);
  observe_heads(heads, context);
  at::Tensor o =
      decodes
          ? rows_differ_in_keys(input, heads, context) ? attend_sequences(input, heads, context)
                                                       : attend_by_row(input, heads, context)
          : attend({.x = input.x, .q = heads.q, .valid_keys = input.valid_keys, .valid_queries = input.valid_queries},
                   seen_of(heads, source, context), context);
  if (heads.gate.defined()) {
    context.show("gate", [&] { return heads.gate; });
    o = context.observe("value_sum", std::move(o)) * heads.gate;
  }
  o = context.observe("o", std::move(o));
  return context.observe("out", projection_->combine(o, heads, context));
}

}  // namespace headroom::nn
