// The causal language model of all five papers' tables: embedding, blocks, final norm, output head; with
// Transformer-XL memory where the config asks for it (Dai et al., section 3.2).
//
// Shapes: B batch, T tokens of this chunk, M memory tokens, d d_model, V vocabulary, L layers.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <span>

#include "headroom/models/decoding.h"
#include "headroom/models/model.h"

namespace headroom::models {

// What a model makes of given tokens, of N places.
struct TokenScores {
  at::Tensor log_probability;  // [N] float64, in nats
  at::Tensor likeliest;        // [N] bool: every other token is less likely
};

// Its memory holds the inputs of each layer during the previous chunk, [B, M, d].
class LanguageModel : public Model {
 public:
  // Builds and initialises; `seed` fixes every parameter. Throws UserError for options without an implementation.
  LanguageModel(const config::ModelOptions& options, const nn::Beginning& beginning);
  LanguageModel(const config::ModelOptions& options, std::uint64_t seed, at::TensorOptions tensor_options = at::kFloat)
      : LanguageModel(options, nn::Beginning(seed, tensor_options)) {}
  ~LanguageModel() override;
  LanguageModel(LanguageModel&&) noexcept;

  const config::ModelOptions& options() const override;
  nn::Parameters& parameters() override;
  const nn::Parameters& parameters() const override;
  MemoryShape memory_shape() const override;
  Batch example(std::int64_t rows, std::uint64_t seed) const override;

  // Batch: "tokens" [B, T+1], as below; or "tokens" [B, T] with "targets" [B, T], those below 0 not counting.
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;
  // `tokens` [B, T+1] int64: inputs are the first T columns, targets the last T; targets below 0 do not count.
  // Reads `memory` and leaves this chunk's there (when options().memory_length > 0).
  Loss loss(const at::Tensor& tokens, Memory& memory, const nn::Context& context) const;
  // `inputs` [B, T] -> logits [B, T, V].
  at::Tensor logits(const at::Tensor& inputs, Memory& memory, const nn::Context& context) const;
  // Of the tokens `targets` [B, T] at least 0, in row-major order; `inputs` [B, T] and `memory` as for logits(). The
  // vocabulary's scores are computed for these places only, some at a time.
  TokenScores score(const at::Tensor& inputs, const at::Tensor& targets, Memory& memory,
                    const nn::Context& context) const;

  // Decoding: a sequence that nothing is known of yet.
  DecodeState start_decoding() const;
  // Each row reads its tokens, any number of them: the logits [N, V] after the last. Equals logits() over consecutive
  // chunks of context_length with carried memory. Without memory, a full context slides: its last half is read again
  // as the beginning of a new one.
  at::Tensor decode(std::span<const DecodeRow> rows, const nn::Context& context) const;
  // The same of one row after each of its n tokens: logits [n, V], of which the last are decode()'s bit for bit.
  at::Tensor decode_each(const DecodeRow& row, const nn::Context& context) const;
  // Reads on without asking what comes next.
  void read(const DecodeRow& row, const nn::Context& context) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The language model that `model` is. Throws UserError, beginning with `what` ("generate"), when it is of another
// kind.
const LanguageModel& as_language_model(const Model& model, std::string_view what);

}  // namespace headroom::models
