// The output layer of a large vocabulary in bands of falling frequency (adaptive softmax, Grave et al.; the word-level
// models of Transformer-MGK). The most frequent words share a softmax with one entry for each rarer band.
//
// Letters: N rows, d width, V vocabulary, cutoffs c_1 < ... < c_n: bands [0, c_1), [c_1, c_2), ..., [c_n, V).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "headroom/nn/context.h"

namespace headroom::nn {

struct AdaptiveSoftmax {
  at::Tensor w, b;                  // [d, V], [V] or undefined
  at::Tensor w_cluster, b_cluster;  // [d, n], [n] or undefined like b
  std::vector<std::int64_t> cutoffs;
  bool reversed = true;  // the entry of band i is the head's c_1 + n - i, not c_1 + i - 1

  // -log p(target) of each row, [N]; only the bands that a target lies in are computed. `x` [N, d], `target` [N] int64
  // in [0, V).
  at::Tensor negative_log_likelihood(const at::Tensor& x, const at::Tensor& target, const Context& context) const;
  // log p of every word, [N, V].
  at::Tensor log_probabilities(const at::Tensor& x, const Context& context) const;

 private:
  at::Tensor head(const at::Tensor& x, const Context& context) const;                                // [N, c_1 + n]
  at::Tensor band(const at::Tensor& x, std::int64_t begin, std::int64_t end, const Context&) const;  // [N, end - begin]
  std::int64_t entry(std::int64_t i) const;  // of band i in the head
};

}  // namespace headroom::nn
