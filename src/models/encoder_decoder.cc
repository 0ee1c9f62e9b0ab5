#include "headroom/models/encoder_decoder.h"

#include <ATen/core/grad_mode.h>

#include "balance.h"
#include "builder.h"
#include "encoder.h"
#include "example.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/models/embedding.h"
#include "headroom/models/vocabulary_head.h"

namespace headroom::models {
namespace {

constexpr const char* kName = "encoder-decoder";

// What decoder blocks read besides their own input.
struct Surroundings {
  at::Tensor target_valid;  // undefined while decoding
  at::Tensor source, source_valid;
  std::vector<nn::AttentionCache>*caches = nullptr, *cross_caches = nullptr;  // one a layer, while decoding
};

}  // namespace

struct EncoderDecoder::Parts {
  config::ModelOptions options;
  nn::Parameters parameters;
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

  // [B, n, d] of target tokens, the first of which stands at `first`.
  at::Tensor write(const at::Tensor& tokens, std::int64_t first, const Surroundings& around,
                   const nn::Context& context) const {
    check_tokens(kName, tokens, around.target_valid);
    if (tokens.size(0) != around.source.size(0)) {
      fail("{}: sources and targets must be pairs, got {} and {}", kName, around.source.size(0), tokens.size(0));
    }
    const nn::Context inner = context.in("decoder");
    BlockInput input;
    input.h = inner.observe("embedding", (*target)(tokens, first, inner));
    input.source = around.source;
    if (around.target_valid.defined()) {
      input.valid_keys = around.target_valid;
    }
    if (around.source_valid.defined()) {
      input.valid_source = around.source_valid;
    }
    for (std::size_t layer = 0; layer < decoder.size(); ++layer) {
      input.cache = around.caches != nullptr ? &(*around.caches)[layer] : nullptr;
      input.cross_cache = around.cross_caches != nullptr ? &(*around.cross_caches)[layer] : nullptr;
      input.h = decoder[layer](input, inner.in(fmt::format("layer{}", layer)));
    }
    return decoder_norm ? inner.observe("norm_f", (*decoder_norm)(input.h)) : input.h;
  }

  at::Tensor hidden(const SequencePair& pair, const nn::Context& context) const {
    const at::Tensor encoded = encode(pair.source, pair.valid_source, context);
    return write(pair.target, 0,
                 {.target_valid = pair.valid_target, .source = encoded, .source_valid = pair.valid_source}, context);
  }
};

struct WritingState {
  at::Tensor encoded, valid_source;
  std::int64_t written = 0;  // target tokens so far
  std::vector<nn::AttentionCache> caches, cross_caches;
  at::Tensor sentence;  // [B] which of the first sources each row reads
};

EncoderDecoder::EncoderDecoder(const config::ModelOptions& o, const nn::Beginning& beginning)
    : parts_(std::make_unique<Parts>()) {
  if (o.kind != config::ModelKind::encoder_decoder) {
    misuse("model.kind: {} is no encoder-decoder", config::name_of(o.kind));
  }
  Parts& p = *parts_;
  const nn::Builder build = make_builder(o, p.parameters, beginning);
  const nn::Builder reading = build.in("encoder"), writing = build.in("decoder");
  const bool final_norm = o.norm_position == config::NormPosition::pre;
  p.options = o;
  const at::Tensor matrix = Embedding::make_matrix(o, build);
  p.source.emplace(o, matrix, reading);
  p.encoder.emplace(o, final_norm, reading);
  p.target.emplace(o, matrix, writing);
  config::ModelOptions layers = o;
  layers.n_layers = o.decoder_layers();
  for (const std::int64_t window : config::layer_windows(layers)) {
    const nn::AttentionPlace place{.d_model = o.d_model,
                                   .n_layers = layers.n_layers,
                                   .causal = true,
                                   .window = window,
                                   .context_length = o.context_length};
    p.decoder.push_back(
        Block::with_cross_attention(layers, place, writing.in(fmt::format("layer{}", p.decoder.size()))));
  }
  if (final_norm) {
    p.decoder_norm.emplace(o.norm, o.norm_epsilon, o.d_model, writing.in("norm_f"));
  }
  p.head.emplace(o, matrix, build.in("head"));
}

EncoderDecoder::~EncoderDecoder() = default;
EncoderDecoder::EncoderDecoder(EncoderDecoder&&) noexcept = default;

const config::ModelOptions& EncoderDecoder::options() const {
  return parts_->options;
}
nn::Parameters& EncoderDecoder::parameters() {
  return parts_->parameters;
}
const nn::Parameters& EncoderDecoder::parameters() const {
  return parts_->parameters;
}

Batch EncoderDecoder::example(std::int64_t rows, std::uint64_t seed) const {
  const config::ModelOptions& o = parts_->options;
  const at::Tensor written = random_ids(o.vocabulary_size, {rows, o.context_length + 1}, seed + 1).to(device());
  Batch batch;
  batch.tensors["source"] = random_ids(o.vocabulary_size, {rows, o.context_length}, seed).to(device());
  batch.tensors["target"] = written.narrow(1, 0, o.context_length);
  batch.tensors["next"] = written.narrow(1, 1, o.context_length);
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
  return parts_->encode(source, valid_source, context);
}

at::Tensor EncoderDecoder::logits(const SequencePair& pair, const nn::Context& context) const {
  return parts_->head->logits(parts_->hidden(pair, context), context);
}

Loss EncoderDecoder::loss(const SequencePair& pair, const at::Tensor& next, double label_smoothing,
                          const nn::Context& context) const {
  const Parts& p = *parts_;
  if (next.sizes() != pair.target.sizes()) {
    fail("{}: the next tokens must have the target's shape", kName);
  }
  BalanceLosses losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor h = p.hidden(pair, inner).reshape({-1, p.options.d_model});
  at::Tensor cross_entropy = p.head->cross_entropy(h, next.reshape({-1}), label_smoothing, context);
  return with_balance(std::move(cross_entropy), std::move(losses), p.options, context);
}

std::unique_ptr<WritingState, void (*)(WritingState*)> EncoderDecoder::start_decoding(
    const at::Tensor& source, const at::Tensor& valid_source, const nn::Context& context) const {
  const at::NoGradGuard no_grad;
  auto state =
      std::unique_ptr<WritingState, void (*)(WritingState*)>(new WritingState, [](WritingState* p) { delete p; });
  state->encoded = parts_->encode(source, valid_source, context);
  state->valid_source = valid_source;
  state->sentence = at::arange(source.size(0), source.options());
  for (const Block& block : parts_->decoder) {
    state->caches.push_back(block.make_cache());
    state->cross_caches.push_back(block.make_cross_cache());
  }
  return state;
}

void EncoderDecoder::reorder(const at::Tensor& rows, WritingState& state) const {
  const at::NoGradGuard no_grad;
  for (nn::AttentionCache& cache : state.caches) {
    cache.reorder(rows);
  }
  const at::Tensor sentence = state.sentence.index_select(0, rows);
  if (sentence.equal(state.sentence)) {  // translations changed places, each with others of its own source
    return;
  }
  state.sentence = sentence;
  state.encoded = state.encoded.index_select(0, rows);
  if (state.valid_source.defined()) {
    state.valid_source = state.valid_source.index_select(0, rows);
  }
  for (nn::AttentionCache& cache : state.cross_caches) {
    cache.reorder(rows);
  }
}

at::Tensor EncoderDecoder::decode(const at::Tensor& tokens, WritingState& state, const nn::Context& context) const {
  const at::NoGradGuard no_grad;
  if (tokens.dim() != 2 || tokens.size(1) < 1) {
    fail("{}: decode needs at least one token of each sequence", kName);
  }
  const at::Tensor h = parts_->write(tokens, state.written,
                                     {.target_valid = {},
                                      .source = state.encoded,
                                      .source_valid = state.valid_source,
                                      .caches = &state.caches,
                                      .cross_caches = &state.cross_caches},
                                     context);
  state.written += tokens.size(1);
  return parts_->head->logits(h.select(1, h.size(1) - 1), context);
}

const EncoderDecoder& as_encoder_decoder(const Model& model, std::string_view what) {
  const auto* found = dynamic_cast<const EncoderDecoder*>(&model);
  if (found == nullptr) {
    misuse("{}: model.kind: must be encoder_decoder, got {}", what, config::name_of(model.options().kind));
  }
  return *found;
}

}  // namespace headroom::models
