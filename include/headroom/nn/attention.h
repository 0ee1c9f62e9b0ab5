// The one attention layer, assembled from parts: projection x score x composition x position x mask.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "headroom/nn/position.h"
#include "headroom/nn/projection.h"

namespace headroom::nn {

// What the layer takes from its place in a model.
struct AttentionPlace {
  std::int64_t d_model = 0;
  std::int64_t n_layers = 1;  // scales the initialisation
  bool causal = true;
  std::int64_t window = 0;  // keys including self, 0 = all
};

// Keys and values of the tokens read so far, so that decoding computes each once.
class KeyValueCache {
 public:
  // Room for `capacity` tokens.
  explicit KeyValueCache(std::int64_t capacity) : capacity_(capacity) {}
  std::int64_t size() const { return size_; }
  std::int64_t next_position() const { return next_position_; }
  // Appends [B, G, n, e] and returns all keys and values held. Throws Error when they do not fit.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v);
  void keep_last(std::int64_t count);
  void forget();

 private:
  std::int64_t capacity_, size_ = 0, next_position_ = 0;
  at::Tensor k_, v_;  // [B, G, capacity, e]
};

struct AttentionInput {
  at::Tensor x;                          // [B, T, d] queries, after the norm
  at::Tensor source;                     // [B, S, d] keys and values, ending with x; undefined: x itself
  std::optional<at::Tensor> valid_keys;  // [B, S] bool
  KeyValueCache* cache = nullptr;        // decoding: x is appended to what the cache holds
};

class Attention {
 public:
  // Throws MisuseError for options without an implementation.
  Attention(const config::AttentionOptions& options, const AttentionPlace& place, const Builder& build);
  // [B, T, d_model] in the compute type.
  at::Tensor operator()(const AttentionInput& input, const Context& context) const;

 private:
  at::Tensor relative_offsets(std::int64_t n_queries, std::int64_t n_keys, const Context& context) const;

  config::AttentionOptions options_;
  AttentionPlace place_;
  std::unique_ptr<Projection> projection_;
  std::optional<Rotary> rotary_;
  at::Tensor w_pos_, u_, v_;    // relative positions: [d, H, e], [H, e], [H, e]
  at::Tensor scale_;            // learned, [1]
  at::Tensor q_norm_, k_norm_;  // [e]
};

}  // namespace headroom::nn
