#include "cache.h"

#include <algorithm>

#include "headroom/config/config.h"
#include "model_parts.h"

namespace headroom::cost {

using namespace config;

namespace {

Exact layer_numbers(const AttentionOptions& a, std::int64_t tokens, bool memory) {
  const std::optional<Exact> state = a.score->state_elements(a);
  if (state && !memory) {
    return *state;
  }
  return (a.projection->cache_elements(a) + a.composition->cache_elements(a)) * tokens;
}

}  // namespace

std::int64_t decoding_cache_numbers(const ModelOptions& model) {
  const bool translates = model.kind == ModelKind::encoder_decoder;
  if (model.kind != ModelKind::language_model && !translates) {
    return 0;
  }
  const AttentionOptions& a = model.attention;
  const std::int64_t tokens = (Exact(model.context_length) + model.memory_length).value();
  ModelOptions layers = model;
  layers.n_layers = translates ? model.decoder_layers() : model.n_layers;
  Exact n = 0;
  for (const std::int64_t window : layer_windows(layers)) {
    n += layer_numbers(a, window > 0 ? std::min(window, tokens) : tokens, model.memory_length > 0);
    n += translates ? layer_numbers(a, model.context_length, false) : 0;
  }
  return n.value();
}

}  // namespace headroom::cost
