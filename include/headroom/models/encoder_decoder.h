// The Transformer that reads one sequence and writes another (MoA's WMT14 models, Transformer-MGK's IWSLT14 ones).
//
// Shapes: B batch, S source tokens, T target tokens, d d_model, V vocabulary.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headroom/models/decoding.h"
#include "headroom/models/model.h"

namespace headroom::models {

// What the encoder reads, and what the decoder reads, which begins with a start token. Masks: false is padding, which
// no token sees; undefined: there is none.
struct SequencePair {
  at::Tensor source;        // [B, S] int64 below Vs, or V without a vocabulary of its own; S up to context_length
  at::Tensor valid_source;  // [B, S] bool
  at::Tensor target;        // [B, T] int64, T up to context_length
  at::Tensor valid_target;  // [B, T] bool
};

// One embedding for both sequences (and the output, with tied_embeddings), or, with a source_vocabulary_size Vs,
// another one for the source, "encoder.embed" [Vs, d]; "encoder.layer0.*": blocks without causal mask;
// "decoder.layer0.*": causal blocks with cross-attention; a norm after each stack with norm_position = "pre". Learned
// positions are a table each, relative ones for self-attention only. Windows limit the decoder's self-attention.
class EncoderDecoder : public Model {
 public:
  // `seed` fixes every parameter. Throws UserError for another kind of model.
  EncoderDecoder(const config::ModelOptions& options, const nn::Beginning& beginning);
  EncoderDecoder(const config::ModelOptions& options, std::uint64_t seed, at::TensorOptions tensor_options = at::kFloat)
      : EncoderDecoder(options, nn::Beginning(seed, tensor_options)) {}
  ~EncoderDecoder() override;
  EncoderDecoder(EncoderDecoder&&) noexcept;

  const config::ModelOptions& options() const override;
  nn::Parameters& parameters() override;
  const nn::Parameters& parameters() const override;
  Batch example(std::int64_t rows, std::uint64_t seed) const override;

  // Batch: "source", "valid_source" (without it: all are tokens), "target", "valid_target", "next", as below, and its
  // label_smoothing.
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;

  // All functions throw Error on shapes other than those above.
  // The encoder's result [B, S, d].
  at::Tensor encode(const at::Tensor& source, const at::Tensor& valid_source, const nn::Context& context) const;
  // Logits [B, T, V] of the token after each of the target's.
  at::Tensor logits(const SequencePair& pair, const nn::Context& context) const;
  // `next` [B, T] int64: the token after each of the target's, below 0 where it does not count. Label smoothing as in
  // VocabularyHead::cross_entropy().
  Loss loss(const SequencePair& pair, const at::Tensor& next, double label_smoothing, const nn::Context& context) const;

  // Decoding: a state for each source of [B, S] (`valid_source` [B, S] bool, undefined: all of them), which is encoded
  // and projected once, by itself.
  std::vector<DecodeState> start_decoding(const at::Tensor& source, const at::Tensor& valid_source,
                                          const nn::Context& context) const;
  // Each row reads its target tokens, any number of them: the logits [N, V] after the last. They equal those of
  // logits() without target padding. Throws Error beyond context_length, before anything is read.
  at::Tensor decode(std::span<const DecodeRow> rows, const nn::Context& context) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The model as an encoder-decoder; throws UserError, beginning with `what` ("generate"), for another kind.
const EncoderDecoder& as_encoder_decoder(const Model& model, std::string_view what);

}  // namespace headroom::models
