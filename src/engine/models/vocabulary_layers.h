// The layers at both ends of a model that reads or writes tokens: embedding and output layer.
//
// Letters: B batch, N rows, d d_model, V vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/nn/linear.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

// Computes norm(scale * embed[token] + position), then dropout. Only masked language models have the norm. The scale is
// 1, in encoder-decoders sqrt(d) (Vaswani et al., section 3.4).
class Embedding {
 public:
  // Parameters "embed" [V, d], with learned positions "position" [context_length, d], and "norm_embed.*".
  Embedding(const config::ModelOptions& options, const nn::Builder& build);
  // Uses the given `matrix` [V, d] with its own positions.
  Embedding(const config::ModelOptions& options, at::Tensor matrix, const nn::Builder& build);
  // Parameter "embed" [V, d], or [vocabulary_size, d].
  static at::Tensor make_matrix(const config::ModelOptions& options, const nn::Builder& build) {
    return make_matrix(options, options.vocabulary_size, build);
  }
  static at::Tensor make_matrix(const config::ModelOptions& options, std::int64_t vocabulary_size,
                                const nn::Builder& build);

  // Embeds tokens [B, n] as [B, n, d]; `first` is the position of the first token. Throws Error beyond context_length.
  at::Tensor operator()(const at::Tensor& tokens, std::int64_t first, const nn::Context& context) const {
    return (*this)(tokens, at::IntArrayRef(first), context);
  }
  // `first` holds one first position per row, or one for all rows.
  at::Tensor operator()(const at::Tensor& tokens, at::IntArrayRef first, const nn::Context& context) const;
  const at::Tensor& matrix() const { return embed_; }

 private:
  double scale_, dropout_;
  std::int64_t context_length_;
  at::Tensor embed_, position_;  // position_: learned, sinusoids or undefined
  std::optional<nn::NormLayer> norm_;
};

// Adaptive softmax (Grave et al.): an output layer for large vocabularies, in bands of decreasing token frequency. The
// most frequent tokens share a softmax (the head) with one entry for each rarer band. Cutoffs c_1 < ... < c_n give the
// bands [0, c_1), [c_1, c_2), ..., [c_n, V).
struct AdaptiveSoftmax {
  at::Tensor w, b;                  // [d, V], [V] or undefined
  at::Tensor w_cluster, b_cluster;  // [d, n], [n] or undefined like b
  std::vector<std::int64_t> cutoffs;
  bool reversed = true;  // the entry of band i in the head is c_1 + n - i instead of c_1 + i - 1

  // Returns -log p(target) of each row, [N]; computes only the targets' bands. `x` is [N, d], `target` [N] int64 in [0,
  // V).
  at::Tensor negative_log_likelihood(const at::Tensor& x, const at::Tensor& target, const nn::Context& context) const;
  // Returns log p of every token, [N, V].
  at::Tensor log_probabilities(const at::Tensor& x, const nn::Context& context) const;

 private:
  at::Tensor head(const at::Tensor& x, const nn::Context& context) const;  // [N, c_1 + n]
  at::Tensor band(const at::Tensor& x, std::int64_t begin, std::int64_t end,
                  const nn::Context& context) const;  // [N, end - begin]
  std::int64_t entry(std::int64_t i) const;           // of band i in the head
};

class VocabularyHead {
 public:
  // Parameters "w" [d, V], unless tied to `embedding` [V, d], and "b" [V] with head_bias; for the n cutoffs of an
  // adaptive softmax "w_cluster" [d, n] and "b_cluster" [n].
  VocabularyHead(const config::ModelOptions& options, const at::Tensor& embedding, const nn::Builder& build);

  // Returns the scores of all tokens up to a constant: [..., V] for x [..., d].
  at::Tensor logits(const at::Tensor& x, const nn::Context& context) const;
  // Returns the mean over targets >= 0 in nats, a scalar; `x` is [N, d], `target` [N] int64. With label smoothing s,
  // the target has probability 1 - s, and s is spread evenly over all V tokens. Throws Error unless s is in [0, 1), and
  // 0 with an adaptive softmax.
  at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& target, double label_smoothing,
                           const nn::Context& context) const;

 private:
  at::Tensor matrix() const;  // [d, V]
  AdaptiveSoftmax adaptive() const;
  at::Tensor smoothing(const at::Tensor& x, const at::Tensor& target) const;

  std::int64_t vocabulary_size_;
  std::vector<std::int64_t> cutoffs_;
  at::Tensor embedding_, cached_embedding_;  // tied
  at::Tensor w_, b_;
  at::Tensor cluster_w_, cluster_b_;
};

}  // namespace headroom::models
