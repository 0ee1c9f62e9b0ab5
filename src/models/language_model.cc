#include "headroom/models/language_model.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/models/block.h"
#include "headroom/models/embedding.h"
#include "headroom/nn/adaptive_softmax.h"
#include "headroom/ops/linear_cross_entropy.h"

namespace headroom::models {
namespace {

// The weight of a balance loss that a layer reports under this name.
double balance_coefficient(const config::ModelOptions& o, const std::string& kind) {
  const config::AttentionOptions& a = o.attention;
  const std::pair<const char*, double> known[] = {{"entropy", o.mlp.entropy_coefficient},
                                                  {"routing_entropy", a.entropy_coefficient},
                                                  {"switch", a.switch_coefficient},
                                                  {"switch_slots", a.switch_slots_coefficient},
                                                  {"cv", a.cv_coefficient},
                                                  {"z", a.z_coefficient}};
  for (const auto& [name, coefficient] : known) {
    if (kind == name) {
      return coefficient;
    }
  }
  fail("balance loss {}: no coefficient belongs to it", kind);
}

}  // namespace

struct LanguageModel::Parts {
  config::ModelOptions options;
  nn::Parameters parameters;
  std::optional<Embedding> embedding;
  at::Tensor head_w, head_b;
  at::Tensor cluster_w, cluster_b;  // of an adaptive softmax
  std::vector<Block> blocks;
  std::optional<nn::NormLayer> norm_f;

  at::Tensor finished(const at::Tensor& h, const nn::Context& context) const {
    return nn::dropout((*norm_f)(h), options.dropout, context);
  }

  at::Tensor output_matrix() const { return head_w.defined() ? head_w : embedding->matrix().t(); }  // [d, V]

  nn::AdaptiveSoftmax adaptive() const {
    return {.w = output_matrix(),
            .b = head_b,
            .w_cluster = cluster_w,
            .b_cluster = cluster_b,
            .cutoffs = options.adaptive_cutoffs};
  }

  // Scores of every token, up to a constant: [..., V] of x [..., d].
  at::Tensor logits(const at::Tensor& x, const nn::Context& context) const {
    if (options.adaptive_cutoffs.empty()) {
      return nn::linear(x, output_matrix(), head_b, context);
    }
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = options.vocabulary_size;
    return adaptive().log_probabilities(x.reshape({-1, options.d_model}), context).view(shape);
  }

  // Mean over targets of at least 0; `x` [N, d], `target` [N].
  at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& target, const nn::Context& context) const {
    if (!options.adaptive_cutoffs.empty()) {
      const at::Tensor counted = target.ge(0).nonzero().squeeze(1);
      return adaptive()
          .negative_log_likelihood(x.index_select(0, counted), target.index_select(0, counted), context)
          .mean();
    }
    std::optional<at::Tensor> b;
    if (head_b.defined()) {
      b = nn::to_compute(head_b, context);
    }
    return ops::linear_cross_entropy(nn::to_compute(x, context), nn::to_compute(output_matrix(), context), b, target,
                                     context.implementation);
  }

  // The final norm's result [B, T, d] for one chunk, with the memory moved on.
  at::Tensor hidden(const at::Tensor& inputs, Memory& memory, const nn::Context& context) const {
    const std::int64_t keep = options.memory_length;
    at::Tensor h = (*embedding)(inputs, 0, context);
    std::vector<at::Tensor> remembered;
    for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
      BlockInput input;
      input.h = h;
      if (layer < memory.layers.size()) {
        input.memory = memory.layers[layer];
      }
      if (keep > 0) {
        at::Tensor seen = h.detach();
        if (input.memory.defined() && seen.size(1) < keep) {
          seen = at::cat({input.memory, seen}, 1);
        }
        remembered.push_back(seen.size(1) > keep ? seen.narrow(1, seen.size(1) - keep, keep).contiguous() : seen);
      }
      h = blocks[layer](input, context.in(fmt::format("layer{}", layer)));
    }
    if (keep > 0) {
      memory.layers = std::move(remembered);
    }
    return finished(h, context);
  }
};

struct DecodeState {
  std::int64_t in_chunk = 0;  // tokens of the current chunk already read
  std::vector<nn::AttentionCache> caches;
  at::Tensor tokens;  // [B, in_chunk] of this chunk, kept where a full context slides
};

LanguageModel::LanguageModel(const config::ModelOptions& o, std::uint64_t seed, at::TensorOptions tensor_options)
    : parts_(std::make_unique<Parts>()) {
  if (o.kind != config::ModelKind::language_model) {
    misuse("model.kind: {} has no implementation yet; use language_model", config::name_of(o.kind));
  }
  // One generator on the CPU makes every parameter, so that a seed means the same model on any device.
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const nn::Builder build(parts_->parameters, generator, tensor_options);
  const double d = static_cast<double>(o.d_model);
  parts_->options = o;
  parts_->embedding.emplace(o, build);
  const std::vector<std::int64_t> windows = config::layer_windows(o);
  for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
    const nn::AttentionPlace place{.d_model = o.d_model,
                                   .n_layers = o.n_layers,
                                   .causal = true,
                                   .window = windows[static_cast<std::size_t>(layer)],
                                   .context_length = o.context_length,
                                   .memory_length = o.memory_length};
    parts_->blocks.emplace_back(o, place, build.in(fmt::format("layer{}", layer)));
  }
  parts_->norm_f.emplace(o.norm, o.norm_epsilon, o.d_model, build.in("norm_f"));
  if (!o.tied_embeddings) {
    parts_->head_w = build.in("head").uniform("w", {o.d_model, o.vocabulary_size}, 1.0 / std::sqrt(d));
  }
  if (o.head_bias) {
    parts_->head_b = build.in("head").uniform("b", {o.vocabulary_size}, 1.0 / std::sqrt(d));
  }
  if (const auto n = static_cast<std::int64_t>(o.adaptive_cutoffs.size()); n > 0) {
    parts_->cluster_w = build.in("head").uniform("w_cluster", {o.d_model, n}, 1.0 / std::sqrt(d));
    if (o.head_bias) {
      parts_->cluster_b = build.in("head").uniform("b_cluster", {n}, 1.0 / std::sqrt(d));
    }
  }
}

LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;

const config::ModelOptions& LanguageModel::options() const {
  return parts_->options;
}
nn::Parameters& LanguageModel::parameters() {
  return parts_->parameters;
}
const nn::Parameters& LanguageModel::parameters() const {
  return parts_->parameters;
}

Loss LanguageModel::loss(const at::Tensor& tokens, Memory& memory, const nn::Context& context) const {
  const std::int64_t t = tokens.size(1) - 1;
  std::map<std::string, at::Tensor> losses;
  nn::Context inner = context;
  inner.losses = &losses;
  const at::Tensor h = parts_->hidden(tokens.narrow(1, 0, t), memory, inner);
  Loss loss;
  loss.cross_entropy =
      parts_->cross_entropy(h.reshape({-1, parts_->options.d_model}), tokens.narrow(1, 1, t).reshape({-1}), context);
  for (const auto& [kind, value] : losses) {
    const at::Tensor term = value * balance_coefficient(parts_->options, kind);
    loss.regulariser = loss.regulariser.defined() ? loss.regulariser + term : term;
  }
  if (context.losses != nullptr) {
    *context.losses = std::move(losses);
  }
  return loss;
}

at::Tensor LanguageModel::logits(const at::Tensor& inputs, Memory& memory, const nn::Context& context) const {
  return parts_->logits(parts_->hidden(inputs, memory, context), context);
}

std::unique_ptr<DecodeState, void (*)(DecodeState*)> LanguageModel::start_decoding(std::int64_t batch) const {
  auto* state = new DecodeState;
  for (const Block& block : parts_->blocks) {
    state->caches.push_back(block.make_cache());
  }
  state->tokens = at::empty({batch, 0}, at::TensorOptions(at::kLong).device(parts_->embedding->matrix().device()));
  return {state, [](DecodeState* p) { delete p; }};
}

std::int64_t LanguageModel::cache_numbers(const DecodeState& state) const {
  std::int64_t total = 0;
  for (const nn::AttentionCache& cache : state.caches) {
    total += cache.numbers();
  }
  return total;
}

at::Tensor LanguageModel::decode(const at::Tensor& tokens, DecodeState& state, const nn::Context& context) const {
  const at::NoGradGuard no_grad;
  const config::ModelOptions& o = parts_->options;
  at::Tensor pending = tokens, h;
  while (pending.size(1) > 0) {
    if (state.in_chunk == o.context_length) {
      state.in_chunk = 0;
      for (nn::AttentionCache& cache : state.caches) {
        o.memory_length > 0 ? cache.keep_last(o.memory_length) : cache.forget();
      }
      if (o.memory_length == 0) {
        // Nothing carries over: the last half of the context is read again as the beginning of a new one.
        const std::int64_t half = o.context_length / 2;
        pending = at::cat({state.tokens.narrow(1, o.context_length - half, half), pending}, 1);
      }
      state.tokens = state.tokens.narrow(1, 0, 0);
    }
    const std::int64_t n = std::min(pending.size(1), o.context_length - state.in_chunk);
    const at::Tensor now = pending.narrow(1, 0, n);
    h = (*parts_->embedding)(now, state.in_chunk, context);
    for (std::size_t layer = 0; layer < parts_->blocks.size(); ++layer) {
      BlockInput input;
      input.h = h;
      input.cache = &state.caches[layer];
      h = parts_->blocks[layer](input, context);
    }
    state.tokens = at::cat({state.tokens, now}, 1);
    state.in_chunk += n;
    pending = pending.narrow(1, n, pending.size(1) - n);
  }
  if (!h.defined()) {
    fail("language model: decode needs at least one token");
  }
  const at::Tensor last = parts_->finished(h.select(1, h.size(1) - 1), context);
  return parts_->logits(last, context);
}

}  // namespace headroom::models
