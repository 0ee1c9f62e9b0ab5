// What decoding keeps of a sequence's tokens read so far, so that each is projected once.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/ops/linear_attention.h"

namespace headroom::nn {

// A ring of the last `capacity` tokens' tensors (keys, values, composition factors, marks), or linear attention's
// state. A copy costs little: the two share what they hold until one of them reads on.
class AttentionCache {
 public:
  // Room for `capacity` tokens. A `sliding` cache drops the oldest when it is full, another one refuses.
  explicit AttentionCache(std::int64_t capacity, bool sliding = false) : capacity_(capacity), sliding_(sliding) {}

  std::int64_t size() const { return size_; }                    // tokens held
  std::int64_t next_position() const { return next_position_; }  // tokens read since forget()
  // Place of the oldest token held in the sequence that the full pass sees (memory and chunk).
  std::int64_t first_index() const { return first_index_; }

  // Appends n tokens' tensors, each [1, *, n, *], and returns what they and their queries may look at, oldest first:
  // [1, *, S, *], with S at least n and, in a sliding cache, at most capacity - 1 + n. Throws Error when they do not
  // fit.
  std::vector<at::Tensor> append(const std::vector<at::Tensor>& fresh);
  // The same for one token, row `row` of tensors [B, *, 1, *]: what it may look at are tokens [begin, begin + S) of
  // tensors [1, *, C, *], which must be let go before the next token. In `any_order` a full window is looked at as it
  // lies, else it is put into its order each time.
  struct Held {
    std::vector<at::Tensor> tensors;
    std::int64_t begin = 0, size = 0;
  };
  Held append_row(const std::vector<at::Tensor>& fresh, std::int64_t row, bool any_order);
  // Counts tokens that only the linear state has taken in.
  void count(std::int64_t n) { next_position_ += n; }
  ops::LinearState& linear() { return linear_; }
  std::int64_t capacity() const { return capacity_; }
  // Relative positions' projected offsets of `capacity` keys, the same for every sequence; undefined until the layer
  // leaves them here. They hold as long as the layer's parameters do not change.
  at::Tensor& offsets() { return offsets_; }

  // Cross-attention: the other sequence's keys, values and composition factors [1, *, S, *], projected once; empty
  // until the layer leaves them here. An undefined tensor: there are none.
  std::vector<at::Tensor>& source() { return source_; }
  std::optional<at::Tensor>& valid_source() { return valid_source_; }  // [1, S] bool; without it: all of its tokens

  // Discards the last `count` tokens, as if they had never been read. False, and nothing is discarded, where it cannot
  // be done: of a linear state, and of a sliding cache that has dropped tokens.
  bool rewind(std::int64_t count);
  void keep_last(std::int64_t count);  // a new chunk begins: the sequence now starts `count` tokens back
  void forget();
  std::int64_t numbers() const;  // held at capacity

 private:
  std::vector<at::Tensor> held() const;  // oldest first
  void make_slots(const std::vector<at::Tensor>& fresh);
  void write_row(const std::vector<at::Tensor>& fresh, std::int64_t row, std::int64_t slot);
  void own();  // slots that a copy shares are copied before they are written to

  std::int64_t capacity_;
  bool sliding_;
  std::int64_t size_ = 0, start_ = 0, next_position_ = 0, first_index_ = 0;
  std::vector<at::Tensor> slots_;  // each [1, *, capacity, *]; token i sits in slot (start + i) mod capacity
  ops::LinearState linear_;
  at::Tensor offsets_;
  std::vector<at::Tensor> source_;
  std::optional<at::Tensor> valid_source_;
};

}  // namespace headroom::nn
