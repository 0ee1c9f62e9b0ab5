// One Transformer layer, and an encoder's stack of layers.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/nn/linear.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/mlp.h"

namespace headroom::models {

struct BlockInput {
  at::Tensor h;                                           // [B, T, d]
  at::Tensor memory;                                      // [B, M, d] earlier inputs of this layer; undefined: none
  std::optional<at::Tensor> valid_keys;                   // [B, M + T] bool; other tokens are not routed
  std::span<nn::AttentionCache* const> caches;            // decoding: one per row
  std::vector<ops::SequenceKeys>* shared_keys = nullptr;  // see nn::AttentionInput
  // Blocks with cross-attention:
  at::Tensor source;                                  // [B, S, d] the other sequence
  std::optional<at::Tensor> valid_source;             // [B, S] bool
  std::span<nn::AttentionCache* const> cross_caches;  // decoding: one per row, from read_source(); no source
};

// pre, sequential:  h += attention(norm_1(h), norm_1(memory, h));  h += mlp(norm_2(h))
// pre, parallel:    h += attention(norm_1(h), ...) + mlp(norm_2(h))
// post, sequential: h = norm_1(h + attention(h, ...));  h = norm_2(h + mlp(h))
// peri, sequential: h += attention(norm_1(h), ..., values of h);  h += mlp(h, routed by norm_2(h))   (MoEUT)
// With output_norms, the outputs of attention, cross-attention and MLP pass through another norm before they are added.
// Cross-attention comes between attention and MLP: h += cross(norm_cross(h), source); parallel and post likewise.
// A block without attention (attention.n_heads = 0) or without MLP (mlp.kind = none) lacks that sublayer's norms and
// addition too.
// model.dropout applies to the outputs of attention, cross-attention and MLP. The MLP's hidden layer and the attention
// weights have separate dropout rates (mlp.dropout, attention.dropout).
class Block {
 public:
  // Throws UserError for options without an implementation.
  Block(const config::ModelOptions& options, const nn::AttentionPlace& place, const nn::Builder& build);
  // With cross-attention, the block also has parameters "cross.*" and "norm_cross.*". Cross-attention uses the options
  // of self-attention, except relative and rotary positions: tokens of two sequences have no distance.
  static Block with_cross_attention(const config::ModelOptions& options, const nn::AttentionPlace& place,
                                    const nn::Builder& build);
  at::Tensor operator()(const BlockInput& input, const nn::Context& context) const;  // [B, T, d]
  bool has_attention() const { return attention_.has_value(); }
  nn::AttentionCache make_cache() const { return attention_->make_cache(); }
  nn::AttentionCache make_cross_cache() const { return cross_->attention.make_cache(); }
  // Stores the keys and values of a source [1, S, d] for cross-attention; `valid` is [1, S] bool, default: all.
  void read_source(const at::Tensor& source, const std::optional<at::Tensor>& valid, nn::AttentionCache& cross_cache,
                   const nn::Context& context) const;

 private:
  struct Cross {
    nn::NormLayer norm;
    nn::Attention attention;
    std::optional<nn::NormLayer> output_norm;
  };

  // `values`: [B, M + T, d]; undefined: the values come from memory and x.
  at::Tensor attend(const at::Tensor& x, const at::Tensor& memory, const BlockInput& input, const nn::Context& context,
                    const at::Tensor& values = {}) const;
  at::Tensor attend_across(const at::Tensor& x, const BlockInput& input, const nn::Context& context) const;
  at::Tensor feed_forward(const at::Tensor& x, const BlockInput& input, const nn::Context& context,
                          const at::Tensor& routed_by = {}) const;
  at::Tensor normed_memory(const BlockInput& input) const;
  at::Tensor peri_norm(const BlockInput& input, const nn::Context& context) const;
  at::Tensor post_norm(const BlockInput& input, const nn::Context& context) const;

  config::Arrangement arrangement_;
  config::NormPosition norm_position_;
  double dropout_, hidden_dropout_;
  std::optional<nn::NormLayer> norm_1_;  // null without attention, as the other parts of its half
  std::optional<nn::Attention> attention_;
  std::optional<nn::NormLayer> output_norm_1_;
  std::optional<Cross> cross_;
  std::optional<nn::NormLayer> norm_2_;  // null without MLP
  std::unique_ptr<nn::Mlp> mlp_;
  std::optional<nn::NormLayer> output_norm_2_;
};

// The layers of a stack that share keys and values (attention.share_kv).
class KeyOwners {
 public:
  KeyOwners(const config::ModelOptions& options, std::int64_t n_layers);
  // The keys and values of one forward pass, by the layer that owns them.
  using Shared = std::map<std::int64_t, std::vector<ops::SequenceKeys>>;
  // Returns BlockInput::shared_keys of a layer.
  std::vector<ops::SequenceKeys>* find(std::size_t layer, Shared& all) const;
  // Layers with keys have caches, in their order: whether the layer has one, and the index of the one that it uses.
  bool owns(std::size_t layer) const { return owners_[layer] == static_cast<std::int64_t>(layer); }
  std::size_t cache_index(std::size_t layer) const { return cache_index_.at(static_cast<std::size_t>(owners_[layer])); }

 private:
  std::vector<std::int64_t> owners_;
  std::vector<std::size_t> cache_index_;
  std::vector<bool> shared_;
};

// Returns a layer's memory for the next chunk: the last `keep` tokens of `memory` (undefined: none) followed by the
// layer's input `h` [B, T, d], detached.
at::Tensor next_memory(const at::Tensor& memory, const at::Tensor& h, std::int64_t keep);

// A stack of blocks without causal mask.
class Encoder {
 public:
  // Parameters "layer0.*", ... and, with `final_norm`, "norm_f.*". Ignores windows, which are causal.
  Encoder(const config::ModelOptions& options, bool final_norm, const nn::Builder& build);
  // Maps [B, T, d] to [B, T, d]. Tokens that are not `valid` [B, T] (undefined: all are valid) are masked and not
  // routed; their outputs are unspecified.
  at::Tensor operator()(at::Tensor h, const at::Tensor& valid, const nn::Context& context) const;

 private:
  std::vector<Block> blocks_;
  std::int64_t n_layers_;  // with n_groups, a block is used as several layers
  KeyOwners owners_;
  std::optional<nn::NormLayer> norm_f_;
};

// Throws Error unless `tokens` is [B, T] int64 and `valid`, if defined, bool of the same shape.
void check_tokens(const char* model, const at::Tensor& tokens, const at::Tensor& valid);

}  // namespace headroom::models
