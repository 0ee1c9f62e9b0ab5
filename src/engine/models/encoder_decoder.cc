#include "headroom/models/encoder_decoder.h"

#include <ATen/core/grad_mode.h>

#include "block.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "model_base.h"
#include "vocabulary_layers.h"

namespace headroom::models {
namespace {

constexpr const char* kName = "encoder-decoder";

}  // namespace

struct EncoderDecoder::Layers : Parts {
  std::optional<Embedding> source, target;
  std::optional<Encoder> encoder;
  std::vector<Block> decoder;
  std::optional<nn::NormLayer> decoder_norm;
  std::optional<VocabularyHead> head;

  at::Tensor encode(const at::Tensor& tokens, const at::Tensor& valid, const nn::Context& context) const {
    check_tokens(kName, tokens, valid);
    const nn::Context inner = context.in("encoder");
    return (*encoder)((*source)(tokens, 0, inner), valid, inner);
  }

  at::Tensor final_norm(const at::Tensor& h, const nn::Context& context) const {
    return decoder_norm ? context.observe("norm_f", (*decoder_norm)(h)) : h;
  }

  // Returns [B, T, d] for target tokens.
  at::Tensor decoder_output(const SequencePair& pair, const at::Tensor& encoded, const nn::Context& context) const {
    check_tokens(kName, pair.target, pair.valid_target);
    if (pair.target.size(0) != encoded.size(0)) {
      fail("{}: source and target must have the same number of rows, got {} and {}", kName, encoded.size(0),
           pair.target.size(0));
    }
    const nn::Context inner = context.in("decoder");
    BlockInput input;
    input.h = inner.observe("embedding", (*target)(pair.target, 0, inner));
    input.source = encoded;
    if (pair.valid_target.defined()) {
      input.valid_keys = pair.valid_target;
    }
    if (pair.valid_source.defined()) {
      input.valid_source = pair.valid_source;
    }
    for (std::size_t layer = 0; layer < decoder.size(); ++layer) {
      input.h = decoder[layer](input, inner.in(fmt::format("layer{}", layer)));
    }
    return final_norm(input.h, inner);
  }

  // Returns the state of an empty target. Padding after the source is cut off.
  DecodeState begin(at::Tensor tokens, const at::Tensor& valid, const nn::Context& context) const {
    std::optional<at::Tensor> mask;
    if (valid.defined()) {
      const at::Tensor places = valid[0].nonzero();
      const std::int64_t n = places.size(0) > 0 ? places[-1].item<std::int64_t>() + 1 : tokens.size(1);
      tokens = tokens.narrow(1, 0, n);
      if (places.size(0) < n) {
        mask = valid.narrow(1, 0, n);
      }
    }
    const at::Tensor encoded = encode(tokens, mask.value_or(at::Tensor()), context);
    DecodeState state;
    for (const Block& block : decoder) {
      const nn::Context inner = context.in("decoder").in(fmt::format("layer{}", state.caches.size()));
      state.caches.push_back(block.make_cache());
      state.cross_caches.push_back(block.make_cross_cache());
      block.read_source(encoded, mask, state.cross_caches.back(), inner);
    }
    return state;
  }

  // Returns [N, 1, d] after the last token of each row, before the final norm.
  at::Tensor read(std::span<const DecodeRow> rows, const nn::Context& context) const {
    const nn::Context inner = context.in("decoder");
    BlockInput input;
    input.h = inner.observe(
        "embedding", (*target)(tokens_of(rows, parameters.all().front().tensor.device()), positions_of(rows), inner));
    for (std::size_t layer = 0; layer < decoder.size(); ++layer) {
      const std::vector<nn::AttentionCache*> own = caches_of(rows, layer, &DecodeState::caches),
                                             cross = caches_of(rows, layer, &DecodeState::cross_caches);
      input.caches = own;
      input.cross_caches = cross;
      input.h = decoder[layer](input, inner.in(fmt::format("layer{}", layer)));
    }
    for (const DecodeRow& row : rows) {
      row.state->position += std::ssize(row.tokens);
    }
    return input.h.narrow(1, input.h.size(1) - 1, 1);
  }

  at::Tensor hidden(const SequencePair& pair, const nn::Context& context) const {
    return decoder_output(pair, encode(pair.source, pair.valid_source, context), context);
  }
};

const EncoderDecoder::Layers& EncoderDecoder::layers() const {
  return static_cast<const Layers&>(*parts_);
}

EncoderDecoder::EncoderDecoder(const config::ModelOptions& o, const nn::ParameterSource& source)
    : Model(std::make_unique<Layers>(), o, config::ModelKind::encoder_decoder) {
  auto& p = static_cast<Layers&>(*parts_);
  const nn::Builder build = make_builder(o, p.parameters, source);
  const nn::Builder encoder = build.in("encoder"), decoder = build.in("decoder");
  const bool has_final_norm = o.norm_position == config::NormPosition::pre;
  const at::Tensor matrix = Embedding::make_matrix(o, build);
  p.source.emplace(
      o, o.source_vocabulary_size == 0 ? matrix : Embedding::make_matrix(o, o.source_vocabulary_size, encoder),
      encoder);
  p.encoder.emplace(o, has_final_norm, encoder);
  p.target.emplace(o, matrix, decoder);
  config::ModelOptions layers = o;
  layers.n_layers = o.decoder_layers();
  for (std::int64_t layer = 0; layer < layers.n_layers; ++layer) {
    const config::ModelOptions own = layers.of_layer(layer);
    const nn::AttentionPlace place{.d_model = o.d_model,
                                   .n_layers = layers.n_layers,
                                   .layer = layer,
                                   .causal = true,
                                   .window = own.attention.window,
                                   .context_length = o.context_length};
    p.decoder.push_back(Block::with_cross_attention(own, place, decoder.in(fmt::format("layer{}", layer))));
  }
  if (has_final_norm) {
    p.decoder_norm.emplace(o.norm, o.last_norm_epsilon(), o.d_model, decoder.in("norm_f"));
  }
  p.head.emplace(o, matrix, build.in("head"));
}

Batch EncoderDecoder::example(std::int64_t rows, std::uint64_t seed) const {
  const config::ModelOptions& o = parts_->options;
  const at::Tensor target = random_ids(o.vocabulary_size, {rows, o.context_length + 1}, seed + 1).to(device());
  Batch batch;
  batch.tensors["source"] = random_ids(o.vocabulary_of_sources(), {rows, o.context_length}, seed).to(device());
  batch.tensors["target"] = target.narrow(1, 0, o.context_length);
  batch.tensors["next"] = target.narrow(1, 1, o.context_length);
  batch.targets.assign(static_cast<std::size_t>(rows), o.context_length);
  batch.tokens = rows * 2 * o.context_length;
  return batch;
}

Loss EncoderDecoder::loss(const Batch& batch, Memory& /*memory*/, const nn::Context& context) const {
  const SequencePair pair{.source = batch.at("source"),
                          .valid_source = batch.find("valid_source"),
                          .target = batch.at("target"),
                          .valid_target = batch.find("valid_target")};
  return loss(pair, batch.at("next"), batch.label_smoothing, context);
}

at::Tensor EncoderDecoder::encode(const at::Tensor& source, const at::Tensor& valid_source,
                                  const nn::Context& context) const {
  return layers().encode(source, valid_source, context);
}

at::Tensor EncoderDecoder::logits(const SequencePair& pair, const nn::Context& context) const {
  return layers().head->logits(layers().hidden(pair, context), context);
}

Loss EncoderDecoder::loss(const SequencePair& pair, const at::Tensor& next, double label_smoothing,
                          const nn::Context& context) const {
  const Layers& p = layers();
  if (next.sizes() != pair.target.sizes()) {
    fail("{}: next must have the target's shape", kName);
  }
  BalanceLosses losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor h = p.hidden(pair, inner).reshape({-1, p.options.d_model});
  at::Tensor cross_entropy = p.head->cross_entropy(h, next.reshape({-1}), label_smoothing, context);
  return with_balance(std::move(cross_entropy), std::move(losses), p.options, context);
}

std::vector<DecodeState> EncoderDecoder::start_decoding(const at::Tensor& source, const at::Tensor& valid_source,
                                                        const nn::Context& context) const {
  const at::NoGradGuard no_grad;
  check_tokens(kName, source, valid_source);
  std::vector<DecodeState> states;
  for (std::int64_t row = 0; row < source.size(0); ++row) {
    states.push_back(layers().begin(source.narrow(0, row, 1),
                                    valid_source.defined() ? valid_source.narrow(0, row, 1) : at::Tensor(), context));
  }
  return states;
}

at::Tensor EncoderDecoder::decode(std::span<const DecodeRow> rows, const nn::Context& context) const {
  const at::NoGradGuard no_grad;
  const Layers& p = layers();
  for (const DecodeRow& row : rows) {
    if (row.state->position + std::ssize(row.tokens) > p.options.context_length) {
      fail("{}: a target must have at most context_length={} tokens, got {}", kName, p.options.context_length,
           row.state->position + std::ssize(row.tokens));
    }
  }
  const ReadRows read = [&](std::span<const DecodeRow> some, const nn::Context& inner) { return p.read(some, inner); };
  const at::Tensor h = read_rows(
      rows, [](const DecodeRow&) { return false; }, read, read, context);
  const nn::Context rows_context = decode_context(context);
  return p.head->logits(p.final_norm(h, rows_context.in("decoder")).squeeze(1), rows_context);
}

const EncoderDecoder& as_encoder_decoder(const Model& model, std::string_view what) {
  const auto* found = dynamic_cast<const EncoderDecoder*>(&model);
  if (found == nullptr) {
    user_error("{}: model.kind: must be encoder_decoder, got {}", what, config::name_of(model.options().kind));
  }
  return *found;
}

}  // namespace headroom::models
