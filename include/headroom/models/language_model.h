// The causal language model of all five papers' tables: embedding, blocks, final norm, output head; with
// Transformer-XL memory where the config asks for it (spec/models.md).
//
// Shapes: B batch, T tokens of this chunk, M memory tokens, d d_model, V vocabulary, L layers.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/models/loss.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

// What layer l remembers of the previous chunk: its inputs, detached [B, M, d]; undefined before the first chunk.
struct Memory {
  std::vector<at::Tensor> layers;
  void forget() { layers.clear(); }
};

// Incremental decoding: keys and values of the tokens seen so far. Opaque to callers; made by start_decoding().
struct DecodeState;

class LanguageModel {
 public:
  // Builds and initialises; `seed` fixes every parameter. Throws MisuseError for options without an implementation.
  LanguageModel(const config::ModelOptions& options, std::uint64_t seed, at::TensorOptions tensor_options = at::kFloat);
  ~LanguageModel();
  LanguageModel(LanguageModel&&) noexcept;

  const config::ModelOptions& options() const;
  nn::Parameters& parameters();
  const nn::Parameters& parameters() const;

  // `tokens` [B, T+1] int64: inputs are the first T columns, targets the last T; targets below 0 do not count.
  // Reads `memory` and leaves this chunk's there (when options().memory_length > 0).
  Loss loss(const at::Tensor& tokens, Memory& memory, const nn::Context& context) const;
  // `inputs` [B, T] -> logits [B, T, V].
  at::Tensor logits(const at::Tensor& inputs, Memory& memory, const nn::Context& context) const;

  // Decoding: feed any number of tokens [B, n], get the logits [B, V] after the last one. Equals logits() over
  // consecutive chunks of context_length with carried memory. Without memory, a full context slides: its last half
  // is read again as the beginning of a new one.
  std::unique_ptr<DecodeState, void (*)(DecodeState*)> start_decoding(std::int64_t batch) const;
  at::Tensor decode(const at::Tensor& tokens, DecodeState& state, const nn::Context& context) const;
  // Numbers that a state has room for, a sequence: what cost::decoding_cache_numbers() says, once decoding has begun.
  std::int64_t cache_numbers(const DecodeState& state) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace headroom::models
