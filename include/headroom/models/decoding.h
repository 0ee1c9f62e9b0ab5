// Token-by-token decoding of several sequences in one batch.
//
// A row is a sequence with its own length, position and chunk; rows may be added, removed, reordered and copied between
// calls. Rows that read one token are computed together and batch-invariantly on the CPU, unless the context asks for
// `batched`. If the context is `split_invariant`, rows that read the same number of tokens are computed together too.
// Any other row that reads several tokens is computed separately.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "headroom/nn/attention_cache.h"
#include "headroom/nn/context.h"

namespace headroom::models {

// The decoding state of one sequence, made by a model's start_decoding(). Copies are cheap: caches are copied on write.
struct DecodeState {
  std::int64_t position = 0;                     // position of the next token within its chunk
  std::int64_t read_again = 0;                   // leading tokens of the chunk that were reread from the previous chunk
  std::vector<nn::AttentionCache> caches;        // one per layer that computes keys
  std::vector<nn::AttentionCache> cross_caches;  // encoder-decoders: one per layer, for the source
  std::vector<std::int64_t> chunk;               // tokens of the chunk, if some may be reread

  // Discards the last `count` tokens of the chunk; the resulting state is bit-identical to the state before them.
  // Returns false and changes nothing if a cache cannot rewind.
  bool rewind(std::int64_t count);
  // Returns the capacity of the caches in elements; after the first token, cost::decoding_cache_elements().
  std::int64_t cache_elements() const;
};

// A sequence and the tokens that continue it.
struct DecodeRow {
  DecodeState* state = nullptr;
  std::span<const std::int64_t> tokens;
};

// Returns one row per state. `tokens` is [N, n] int64, contiguous on the CPU; the rows point into it. Throws Error for
// other tensors.
std::vector<DecodeRow> decode_rows(const at::Tensor& tokens, std::span<DecodeState> states);

// Returns states[indices[0]], states[indices[1]], ...; indices may be repeated or missing. Pass the states by move to
// avoid copies on write: a state whose index occurs once is then moved.
std::vector<DecodeState> gather_states(std::vector<DecodeState> states, std::span<const std::int64_t> indices);

// Returns `context` for rows that are computed together: batch-invariant unless it is `batched`.
nn::Context decode_context(const nn::Context& context);

// A model's forward pass over rows of n tokens; returns [N, n, d], or only each row's last token, [N, 1, d].
using ReadRows = std::function<at::Tensor(std::span<const DecodeRow> rows, const nn::Context& context)>;

// Returns [N, 1, d]. One-token rows for which `alone` is false are computed by one call of `together`, every other row
// by a separate call of `by_itself`. In a split-invariant context, rows of equal length are computed by one call of
// `together` if `alone` is false for all of them; otherwise separately. Throws Error for no rows, a row without tokens,
// or a repeated state.
at::Tensor read_rows(std::span<const DecodeRow> rows, const std::function<bool(const DecodeRow&)>& alone,
                     const ReadRows& together, const ReadRows& by_itself, const nn::Context& context);

// Helpers of models. `rows` must have equal lengths: their tokens [N, n], their positions, and one layer's caches.
at::Tensor tokens_of(std::span<const DecodeRow> rows, at::Device device);
std::vector<std::int64_t> positions_of(std::span<const DecodeRow> rows);
std::vector<nn::AttentionCache*> caches_of(std::span<const DecodeRow> rows, std::size_t layer,
                                           std::vector<nn::AttentionCache> DecodeState::*which);

}  // namespace headroom::models
