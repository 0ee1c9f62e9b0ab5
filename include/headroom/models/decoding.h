// Sequences that are read token by token: what is kept of each, and how several are decoded side by side.
//
// A row is a sequence of its own length, position and chunk; rows come, go, change places and are copied between calls.
// Rows of one token share their products, and each gets the logits that it gets alone, bit for bit, on the CPU, unless
// the context wants batched. A row of more tokens is read by itself: it has rows enough for the products of whole
// sequences.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "headroom/nn/attention_cache.h"
#include "headroom/nn/context.h"

namespace headroom::models {

// What decoding keeps of one sequence, made by a model's start_decoding(). A copy costs little: the two share what they
// hold until one of them reads on.
struct DecodeState {
  std::int64_t position = 0;                     // of the next token in its chunk
  std::int64_t read_again = 0;                   // tokens that the chunk began with, of the one before it
  std::vector<nn::AttentionCache> caches;        // one a layer
  std::vector<nn::AttentionCache> cross_caches;  // of encoder-decoders: what a layer makes of the source
  std::vector<std::int64_t> chunk;               // tokens of the chunk, where some of them may be read again

  // Discards the last `count` tokens of the chunk, as if they had never been read: what is left is, bit for bit, the
  // state after the pieces that end there. False, and nothing is discarded, where a cache cannot go back.
  bool rewind(std::int64_t count);
  // Numbers that the caches have room for: what cost::decoding_cache_numbers() says, once decoding has begun.
  std::int64_t cache_numbers() const;
};

// A sequence, and the tokens that continue it.
struct DecodeRow {
  DecodeState* state = nullptr;
  std::span<const std::int64_t> tokens;
};

// `tokens` [N, n] int64 for as many states: on the CPU and contiguous, the rows point into it. Throws Error otherwise.
std::vector<DecodeRow> decode_rows(const at::Tensor& tokens, std::span<DecodeState> states);

// The states at these places, in this order; a place may come several times or not at all. States that are moved in
// and come once share nothing, so that they need not be copied when they are written to.
std::vector<DecodeState> chosen_states(std::vector<DecodeState> states, std::span<const std::int64_t> places);

// The context of what is computed of rows that share their products.
nn::Context side_by_side(const nn::Context& context);

// What a model makes of rows: [N, 1, d] after the last token of each.
using ReadRows = std::function<at::Tensor(std::span<const DecodeRow> rows, const nn::Context& context)>;

// Rows in the way that the head of this file says: those of one token by `together`, at once, unless `alone` has
// something against it; any other by `by_itself`. [N, 1, d]. Throws Error for no row, a row without a token, and a
// state that comes twice.
at::Tensor read_rows(std::span<const DecodeRow> rows, const std::function<bool(const DecodeRow&)>& alone,
                     const ReadRows& together, const ReadRows& by_itself, const nn::Context& context);

// For the models: the rows' tokens [N, n], all of one length, and their caches of a layer.
at::Tensor tokens_of(std::span<const DecodeRow> rows, at::Device device);
std::vector<std::int64_t> positions_of(std::span<const DecodeRow> rows);
std::vector<nn::AttentionCache*> caches_of(std::span<const DecodeRow> rows, std::size_t layer,
                                           std::vector<nn::AttentionCache> DecodeState::*which);

}  // namespace headroom::models
