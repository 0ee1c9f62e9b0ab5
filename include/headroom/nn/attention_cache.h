// The KV cache of one sequence and one attention layer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace headroom::nn {

// A ring buffer with the tensors of the last `capacity` tokens (keys, values, composition factors, position features),
// or the state of a score that has one. Copies are cheap: tensors are copied on write.
class AttentionCache {
 public:
  // A `sliding` cache drops the oldest token when it is full; other caches throw.
  explicit AttentionCache(std::int64_t capacity, bool sliding = false) : capacity_(capacity), sliding_(sliding) {}

  std::int64_t capacity() const { return capacity_; }
  std::int64_t size() const { return size_; }                    // cached tokens
  std::int64_t next_position() const { return next_position_; }  // tokens read since reset()
  // Index of the oldest cached token within the full source (memory and chunk).
  std::int64_t first_index() const { return first_index_; }

  // Appends the tensors of n tokens, each [1, *, n, *], and returns the tokens visible to the new queries, oldest
  // first: [1, *, S, *], n <= S <= capacity - 1 + n. Throws Error if the tokens do not fit.
  std::vector<at::Tensor> append(const std::vector<at::Tensor>& fresh);
  // The visible tokens are [begin, begin + size) of tensors [1, *, C, *].
  struct Visible {
    std::vector<at::Tensor> tensors;
    std::int64_t begin = 0, size = 0;
  };
  // Like append() for one token: row `row` of tensors [B, *, 1, *]. The result is valid until the next token. With
  // `any_order` a full window is returned in ring-buffer order, otherwise in token order (a copy).
  Visible append_row(const std::vector<at::Tensor>& fresh, std::int64_t row, bool any_order);

  std::vector<at::Tensor> ordered() const;  // cached tokens, oldest first

  // The state of a score with ScorePart::has_state(): its tensors, empty before the first token. advance() counts the
  // tokens accumulated in them. Tensors are replaced, not changed in place.
  std::vector<at::Tensor>& state() { return state_; }
  void advance(std::int64_t n) { next_position_ += n; }
  // Relative positions: projected offsets for `capacity` keys, the same for all sequences. Undefined until the layer
  // stores them; valid while the layer's parameters do not change.
  at::Tensor& offsets() { return offsets_; }

  // Cross-attention: keys, values and composition factors [1, *, S, *] of the source sequence. Empty until the layer
  // stores them.
  std::vector<at::Tensor>& source() { return source_; }
  std::optional<at::Tensor>& valid_source() { return valid_source_; }  // [1, S] bool; default: all

  // Discards the last `count` tokens as if they had never been read. Returns false and changes nothing if that is
  // impossible: for a linear state, and for a sliding cache that has dropped tokens.
  bool rewind(std::int64_t count);
  void keep_last(std::int64_t count);  // starts a new chunk with the last `count` tokens as memory
  void reset();
  std::int64_t elements() const;  // elements of all tensors at full capacity

 private:
  void make_slots(const std::vector<at::Tensor>& fresh);
  void write_row(const std::vector<at::Tensor>& fresh, std::int64_t row, std::int64_t slot);
  void unshare();  // copies tensors that another copy of this cache uses

  std::int64_t capacity_;
  bool sliding_;
  std::int64_t size_ = 0, start_ = 0, next_position_ = 0, first_index_ = 0;
  std::vector<at::Tensor> slots_;  // each [1, *, capacity, *]; token i is in slot (start + i) mod capacity
  std::vector<at::Tensor> state_;
  at::Tensor offsets_;
  std::vector<at::Tensor> source_;
  std::optional<at::Tensor> valid_source_;
};

}  // namespace headroom::nn
