// The encoder-decoder Transformer (MoA's WMT14 models, Transformer-MGK's IWSLT14 models).
//
// Shapes: B batch, S source tokens, T target tokens, d d_model, V vocabulary, N rows.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "headroom/models/decoding.h"
#include "headroom/models/model.h"

namespace headroom::models {

// Inputs of the encoder and the decoder; the target starts with a start token. Masks are false for padding; undefined
// means no padding.
struct SequencePair {
  at::Tensor source;        // [B, S] int64 below Vs (V if the vocabulary is shared), S up to context_length
  at::Tensor valid_source;  // [B, S] bool
  at::Tensor target;        // [B, T] int64, T up to context_length
  at::Tensor valid_target;  // [B, T] bool
};

// One embedding for both sequences (and the output, with tied_embeddings), or, with a source_vocabulary_size Vs, a
// second one for the source, "encoder.embed" [Vs, d]; "encoder.layer0.*": blocks without causal mask;
// "decoder.layer0.*": causal blocks with cross-attention; a norm after each stack with norm_position = "pre". Each side
// has a table of learned positions; relative positions apply to self-attention only. Windows limit the decoder's
// self-attention.
class EncoderDecoder : public Model {
 public:
  // Throws UserError unless the options describe this kind of model.
  EncoderDecoder(const config::ModelOptions& options, const nn::ParameterSource& source);
  EncoderDecoder(const config::ModelOptions& options, std::uint64_t seed, at::TensorOptions tensor_options = at::kFloat)
      : EncoderDecoder(options, nn::ParameterSource(seed, tensor_options)) {}

  // All functions throw Error for shapes other than those documented.

  Batch example(std::int64_t rows, std::uint64_t seed) const override;
  // Batch: "source", "valid_source", "target", "valid_target" (default masks: all valid), "next" and label_smoothing,
  // as below.
  Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const override;
  // Returns the output of the encoder, [B, S, d].
  at::Tensor encode(const at::Tensor& source, const at::Tensor& valid_source, const nn::Context& context) const;
  // Returns the logits [B, T, V] of the token after each target token.
  at::Tensor logits(const SequencePair& pair, const nn::Context& context) const;
  // `next` is [B, T] int64: the token after each target token; negative values are ignored. Label smoothing as in
  // VocabularyHead::cross_entropy().
  Loss loss(const SequencePair& pair, const at::Tensor& next, double label_smoothing, const nn::Context& context) const;

  // Decoding: returns one state per source in [B, S]; sources are encoded separately. `valid_source` is [B, S] bool;
  // undefined: all valid.
  std::vector<DecodeState> start_decoding(const at::Tensor& source, const at::Tensor& valid_source,
                                          const nn::Context& context) const;
  // Reads one or more target tokens per row and returns logits [N, V] after the last of each. Equals logits() without
  // target padding. Throws Error beyond context_length, before anything is read.
  at::Tensor decode(std::span<const DecodeRow> rows, const nn::Context& context) const;

 private:
  struct Layers;
  const Layers& layers() const;
};

// Returns `model` as an encoder-decoder. Throws UserError starting with `what` ("generate") for another kind.
const EncoderDecoder& as_encoder_decoder(const Model& model, std::string_view what);

}  // namespace headroom::models
