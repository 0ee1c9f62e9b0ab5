// The causal language model: embedding, blocks, final norm, output head; with Transformer-XL memory if the config sets
// memory_length (Dai et al., section 3.2).
//
// Shapes: B batch, T tokens of this chunk, M memory tokens, d d_model, V vocabulary, N rows or places.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>

#include "headroom/models/decoding.h"
#include "headroom/models/model.h"

namespace headroom::models {

struct TokenScores {
  at::Tensor log_probability;  // [N] float64, in nats
  at::Tensor likeliest;        // [N] bool: the target is the most likely token
};

// A causal language model. Its memory holds each layer's inputs from the previous chunk, [B, M, d].
class LanguageModel : public Model {
 public:
  // Throws UserError unless the options describe this kind of model.
  LanguageModel(const config::ModelOptions& options, const nn::ParameterSource& source);
  LanguageModel(const config::ModelOptions& options, std::uint64_t seed, at::TensorOptions tensor_options = at::kFloat)
      : LanguageModel(options, nn::ParameterSource(seed, tensor_options)) {}

  MemoryShape memory_shape() const override;
  Batch example(std::int64_t rows, std::uint64_t seed) const override;

  // Batch: "tokens" [B, T+1], as below; or "tokens" [B, T] with "targets" [B, T], where negative targets are ignored.
  // With "teacher", the loss includes the divergence from the teacher (Distillation).
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;
  // `tokens` is [B, T+1] int64: the inputs are the first T columns, the targets the last T; negative targets are
  // ignored. Reads `memory` and replaces it with this chunk's if options().memory_length > 0.
  Loss loss(const at::Tensor& tokens, Memory& memory, const nn::Context& context) const;
  // Returns the logits [B, T, V] for `inputs` [B, T].
  at::Tensor logits(const at::Tensor& inputs, Memory& memory, const nn::Context& context) const;
  // Returns the scores of the N non-negative `targets` [B, T] in row-major order; `inputs` [B, T] and `memory` as for
  // logits(). Computes logits for these positions only, one block at a time.
  TokenScores score(const at::Tensor& inputs, const at::Tensor& targets, Memory& memory,
                    const nn::Context& context) const;

  // Decoding: returns the state of an empty sequence.
  DecodeState start_decoding() const;
  // Reads one or more tokens per row and returns logits [N, V] after the last of each. Equals logits() over consecutive
  // chunks of context_length with carried memory. Without memory, a full context slides: its second half is reread as
  // the start of a new one.
  at::Tensor decode(std::span<const DecodeRow> rows, const nn::Context& context) const;
  // Like decode() for one row, with the logits after each of its n tokens: [n, V]. The last row is bit-identical to
  // decode()'s.
  at::Tensor decode_each(const DecodeRow& row, const nn::Context& context) const;
  // decode() without the logits.
  void read(std::span<const DecodeRow> rows, const nn::Context& context) const;
  void read(const DecodeRow& row, const nn::Context& context) const { read(std::span(&row, 1), context); }

 private:
  struct Layers;
  const Layers& layers() const;
};

// Returns `model` as a language model. Throws UserError starting with `what` ("generate") for another kind.
const LanguageModel& as_language_model(const Model& model, std::string_view what);

}  // namespace headroom::models
