// One layer of a Transformer: attention and MLP around their norms and residuals; in a decoder attention to another
// sequence as well.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <span>

#include "engine/nn/linear.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/mlp.h"

namespace headroom::models {

struct BlockInput {
  at::Tensor h;                                 // [B, T, d]
  at::Tensor memory;                            // [B, M, d] earlier inputs of this layer; undefined: none
  std::optional<at::Tensor> valid_keys;         // [B, M + T] bool; tokens that are none are routed nowhere
  std::span<nn::AttentionCache* const> caches;  // decoding: of each row
  // Blocks with cross-attention:
  at::Tensor source;                                  // [B, S, d] the other sequence
  std::optional<at::Tensor> valid_source;             // [B, S] bool
  std::span<nn::AttentionCache* const> cross_caches;  // decoding: instead of these, what read_source() left
};

// pre, sequential:  h += attention(norm_1(h), norm_1(memory, h));  h += mlp(norm_2(h))
// pre, parallel:    h += attention(norm_1(h), ...) + mlp(norm_2(h))
// post, sequential: h = norm_1(h + attention(h, ...));  h = norm_2(h + mlp(h))
// With cross-attention, between the two: h += cross(norm_cross(h), source), parallel and post likewise.
// Dropout acts on the results of attention and MLP and inside a dense MLP, never on attention probabilities.
class Block {
 public:
  // Throws UserError for options without an implementation.
  Block(const config::ModelOptions& options, const nn::AttentionPlace& place, const nn::Builder& build);
  // The same with cross-attention: parameters "cross.*" and "norm_cross.*". It has the options of the other attention,
  // but no relative or rotary positions: two sequences have no distances between them.
  static Block with_cross_attention(const config::ModelOptions& options, const nn::AttentionPlace& place,
                                    const nn::Builder& build);
  at::Tensor operator()(const BlockInput& input, const nn::Context& context) const;  // [B, T, d]
  nn::AttentionCache make_cache() const { return attention_.make_cache(); }
  nn::AttentionCache make_cross_cache() const { return cross_->attention.make_cache(); }
  // What cross-attention makes of a source [1, S, d]; `valid` [1, S] bool; without it: all tokens.
  void read_source(const at::Tensor& source, const std::optional<at::Tensor>& valid, nn::AttentionCache& cross_cache,
                   const nn::Context& context) const;

 private:
  struct Cross {
    nn::NormLayer norm;
    nn::Attention attention;
  };

  at::Tensor attend(const at::Tensor& x, const at::Tensor& memory, const BlockInput& input,
                    const nn::Context& context) const;
  at::Tensor attend_across(const at::Tensor& x, const BlockInput& input, const nn::Context& context) const;
  at::Tensor feed_forward(const at::Tensor& x, const nn::Context& context) const;
  at::Tensor post_norm(const BlockInput& input, const nn::Context& context) const;

  config::Arrangement arrangement_;
  config::NormPosition norm_position_;
  double dropout_, hidden_dropout_;
  nn::NormLayer norm_1_;
  nn::Attention attention_;
  std::optional<Cross> cross_;
  nn::NormLayer norm_2_;
  std::unique_ptr<nn::Mlp> mlp_;
};

// What a layer remembers of its input `h` [B, T, d] for the next chunk: the last `keep` tokens of `memory` (undefined:
// none) and h, detached.
at::Tensor remembered(const at::Tensor& memory, const at::Tensor& h, std::int64_t keep);

}  // namespace headroom::models
