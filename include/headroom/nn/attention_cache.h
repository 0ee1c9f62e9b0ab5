// What decoding keeps of the tokens read so far, so that each is projected once.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "headroom/ops/linear_attention.h"

namespace headroom::nn {

// A ring of the last `capacity` tokens' tensors (keys, values, composition factors, marks), or linear attention's
// state.
class AttentionCache {
 public:
  // Room for `capacity` tokens. A `sliding` cache drops the oldest when it is full, another one refuses.
  explicit AttentionCache(std::int64_t capacity, bool sliding = false) : capacity_(capacity), sliding_(sliding) {}

  std::int64_t size() const { return size_; }                    // tokens held
  std::int64_t next_position() const { return next_position_; }  // tokens read since forget()
  // Place of the oldest token held in the sequence that the full pass sees (memory and chunk).
  std::int64_t first_index() const { return first_index_; }

  // Appends n tokens' tensors, each [B, *, n, *], and returns what they and their queries may look at, oldest first:
  // [B, *, S, *], with S at least n and, in a sliding cache, at most capacity - 1 + n. Throws Error when they do not
  // fit.
  std::vector<at::Tensor> append(const std::vector<at::Tensor>& fresh);
  // Counts tokens that only the linear state has taken in.
  void count(std::int64_t n) { next_position_ += n; }
  ops::LinearState& linear() { return linear_; }
  std::int64_t capacity() const { return capacity_; }
  // Relative positions' projected offsets, the same for every sequence; undefined until the layer leaves them here.
  // They hold as long as the layer's parameters do not change.
  at::Tensor& offsets() { return offsets_; }

  // Cross-attention: the other sequence's keys, values and composition factors, projected once; empty until the layer
  // leaves them here. An undefined tensor: there are none.
  std::vector<at::Tensor>& source() { return source_; }
  // Goes on with the sequences of these rows [n] int64, in this order; a row may come several times or not at all.
  void reorder(const at::Tensor& rows);

  void keep_last(std::int64_t count);  // a new chunk begins: the sequence now starts `count` tokens back
  void forget();
  std::int64_t numbers() const;  // held for one sequence of the batch at capacity

 private:
  std::vector<at::Tensor> held() const;  // oldest first

  std::int64_t capacity_;
  bool sliding_;
  std::int64_t size_ = 0, start_ = 0, next_position_ = 0, first_index_ = 0;
  std::vector<at::Tensor> slots_;  // each [B, *, capacity, *]; token i sits in slot (start + i) mod capacity
  ops::LinearState linear_;
  at::Tensor offsets_;
  std::vector<at::Tensor> source_;
};

}  // namespace headroom::nn
