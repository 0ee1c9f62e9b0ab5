#include "headroom/models/language_model.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <limits>

#include "block.h"
#include "engine/ops/many_rows.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "model_base.h"
#include "vocabulary_layers.h"

namespace headroom::models {

namespace {

// Returns log-probabilities of k + 1 classes: the tokens `index` [N, k], then all other tokens together.
at::Tensor in_classes(const at::Tensor& log_p, const at::Tensor& index) {
  const at::Tensor tokens = index.to(at::kLong);
  const at::Tensor others = log_p.scatter(-1, tokens, -std::numeric_limits<double>::infinity()).logsumexp(-1, true);
  return at::cat({log_p.gather(-1, tokens), others}, -1);
}

}  // namespace

struct LanguageModel::Layers : Parts {
  std::optional<Embedding> embedding;
  std::vector<Block> blocks;  // one per set of parameters
  std::optional<KeyOwners> owners;
  std::optional<nn::NormLayer> norm_f;
  std::optional<VocabularyHead> head;

  std::size_t n_layers() const { return static_cast<std::size_t>(options.n_layers); }
  const Block& block(std::size_t layer) const { return blocks[layer % blocks.size()]; }

  at::Tensor final_norm(const at::Tensor& h, const nn::Context& context) const {
    return nn::dropout(context.observe("norm_f", (*norm_f)(h)), options.dropout, context, "final");
  }

  // Returns the final norm's output [B, T, d] for one chunk; replaces `memory` with this chunk's.
  at::Tensor hidden(const at::Tensor& inputs, Memory& memory, const nn::Context& context) const {
    const std::int64_t keep = options.memory_length;
    at::Tensor h = context.observe("embedding", (*embedding)(inputs, 0, context));
    std::vector<at::Tensor> next_memory;
    KeyOwners::Shared shared;
    for (std::size_t layer = 0; layer < n_layers(); ++layer) {
      BlockInput input;
      input.h = h;
      input.shared_keys = owners->find(layer, shared);
      if (layer < memory.layers.size()) {
        input.memory = memory.layers[layer];
      }
      if (keep > 0) {
        next_memory.push_back(models::next_memory(input.memory, h, keep));
      }
      h = block(layer)(input, context.in(fmt::format("layer{}", layer)));
    }
    if (keep > 0) {
      memory.layers = std::move(next_memory);
    }
    return final_norm(h, context);
  }

  // Like loss(), with the divergence from the batch's teacher.
  Loss distil(const at::Tensor& inputs, const at::Tensor& targets, const Batch& batch, Memory& memory,
              const nn::Context& context) const {
    BalanceLosses losses;
    nn::Context inner = context;
    inner.losses = &losses;
    const at::Tensor h = hidden(inputs, memory, inner).reshape({-1, options.d_model});
    const at::Tensor logits = head->logits(h, context).to(at::kFloat);
    const at::Tensor target = targets.reshape({-1}), asked = target.ge(0).nonzero().squeeze(1);
    const at::Tensor own = logits.index_select(0, asked);
    at::Tensor cross_entropy = at::nll_loss(own.log_softmax(-1), target.index_select(0, asked));
    const auto rows = [&](const at::Tensor& teacher) { return teacher.flatten(0, 1).index_select(0, asked); };
    const Distillation& how = batch.distillation;
    at::Tensor wanted = rows(batch.at("teacher")), found = (own / how.temperature).log_softmax(-1);
    if (const at::Tensor index = batch.find("teacher_index"); index.defined()) {
      found = in_classes(found, rows(index));
    } else {
      wanted = (wanted / how.temperature).log_softmax(-1);
    }
    const at::Tensor divergence = (wanted.exp() * (wanted - found)).sum(-1).mean();
    Loss loss = with_balance(std::move(cross_entropy), std::move(losses), options, context);
    loss.divergence = divergence * (how.temperature * how.temperature);
    loss.teacher_weight = how.weight;
    return loss;
  }

  Loss loss(const at::Tensor& inputs, const at::Tensor& targets, Memory& memory, const nn::Context& context) const {
    BalanceLosses losses;
    nn::Context inner = context;
    inner.losses = &losses;
    const at::Tensor h = hidden(inputs, memory, inner);
    at::Tensor cross_entropy = head->cross_entropy(h.reshape({-1, options.d_model}), targets.reshape({-1}),
                                                   /*label_smoothing=*/0.0, context);
    return with_balance(std::move(cross_entropy), std::move(losses), options, context);
  }

  // Whether the context is full and no memory carries over.
  bool slides(const DecodeState& state) const {
    return options.memory_length == 0 && state.position == options.context_length;
  }

  // Returns [N, n, d] before the final norm, for rows of n tokens, which must fit into the chunk.
  at::Tensor read(std::span<const DecodeRow> rows, const nn::Context& context) const {
    for (const DecodeRow& row : rows) {
      if (row.state->position == options.context_length) {
        begin_chunk(*row.state);
      }
    }
    at::Tensor h = context.observe(
        "embedding", (*embedding)(tokens_of(rows, embedding->matrix().device()), positions_of(rows), context));
    KeyOwners::Shared shared;
    for (std::size_t layer = 0; layer < n_layers(); ++layer) {
      std::vector<nn::AttentionCache*> caches;
      if (block(layer).has_attention()) {
        caches = caches_of(rows, owners->cache_index(layer), &DecodeState::caches);
      }
      BlockInput input;
      input.h = h;
      input.shared_keys = owners->find(layer, shared);
      input.caches = caches;
      h = block(layer)(input, context.in(fmt::format("layer{}", layer)));
    }
    for (const DecodeRow& row : rows) {
      row.state->position += std::ssize(row.tokens);
      if (options.memory_length == 0) {
        row.state->chunk.insert(row.state->chunk.end(), row.tokens.begin(), row.tokens.end());
      }
    }
    return h;
  }

  // Like read() for one row and any number of tokens, chunk by chunk. Returns only the last token unless `each` is set.
  at::Tensor read_on(const DecodeRow& row, bool each, const nn::Context& context) const {
    std::vector<std::int64_t> pending(row.tokens.begin(), row.tokens.end());
    std::vector<at::Tensor> pieces;
    std::int64_t again = 0;  // number of leading pending tokens that are reread
    for (std::int64_t read_so_far = 0; read_so_far < std::ssize(pending);) {
      if (slides(*row.state)) {
        // The second half of the context is reread as the start of a new one.
        const std::vector<std::int64_t>& chunk = row.state->chunk;
        pending.insert(pending.begin() + read_so_far, chunk.end() - options.context_length / 2, chunk.end());
        begin_chunk(*row.state);
        again = row.state->read_again = options.context_length / 2;
      }
      const std::int64_t room = options.context_length - row.state->position % options.context_length;
      const std::int64_t n = std::min(std::ssize(pending) - read_so_far, room);
      const DecodeRow part{
          row.state, std::span(pending).subspan(static_cast<std::size_t>(read_so_far), static_cast<std::size_t>(n))};
      const at::Tensor h = read({&part, 1}, context);
      read_so_far += n;
      const std::int64_t skipped = std::min(again, n);
      again -= skipped;
      if (each && skipped < n) {
        pieces.push_back(h.narrow(1, skipped, n - skipped));
      } else if (!each) {
        pieces = {h.narrow(1, n - 1, 1)};
      }
    }
    return pieces.size() == 1 ? pieces[0] : at::cat(pieces, 1);
  }

  // Returns [N, 1, d] after the last token of each row, before the final norm.
  at::Tensor last_of(std::span<const DecodeRow> rows, const nn::Context& context) const {
    return read_rows(
        rows,
        [&](const DecodeRow& row) {
          const std::int64_t room = options.context_length - row.state->position % options.context_length;
          return slides(*row.state) || std::ssize(row.tokens) > room;
        },
        [&](std::span<const DecodeRow> all, const nn::Context& inner) { return read(all, inner); },
        [&](std::span<const DecodeRow> one, const nn::Context& inner) {
          return read_on(one[0], /*each=*/false, inner);
        },
        context);
  }

  // Returns the logits [N, V] for the result of last_of().
  at::Tensor next_logits(const at::Tensor& h, const nn::Context& context) const {
    const nn::Context rows_context = decode_context(context);
    return head->logits(final_norm(h, rows_context).squeeze(1), rows_context);
  }

  void begin_chunk(DecodeState& state) const {
    for (nn::AttentionCache& cache : state.caches) {
      options.memory_length > 0 ? cache.keep_last(options.memory_length) : cache.reset();
    }
    state.position = state.read_again = 0;
    state.chunk.clear();
  }
};

const LanguageModel::Layers& LanguageModel::layers() const {
  return static_cast<const Layers&>(*parts_);
}

LanguageModel::LanguageModel(const config::ModelOptions& o, const nn::ParameterSource& source)
    : Model(std::make_unique<Layers>(), o, config::ModelKind::language_model) {
  auto& p = static_cast<Layers&>(*parts_);
  const nn::Builder build = make_builder(o, p.parameters, source);
  p.embedding.emplace(o, build);
  for (std::int64_t layer = 0; layer < o.distinct_layers(); ++layer) {
    const config::ModelOptions own = o.of_layer(layer);
    const nn::AttentionPlace place{.d_model = o.d_model,
                                   .n_layers = o.n_layers,
                                   .layer = layer,
                                   .causal = true,
                                   .window = own.attention.window,
                                   .context_length = o.context_length,
                                   .memory_length = o.memory_length};
    p.blocks.emplace_back(own, place, build.in(fmt::format("layer{}", layer)));
  }
  p.owners.emplace(o, o.n_layers);
  p.norm_f.emplace(o.norm, o.last_norm_epsilon(), o.d_model, build.in("norm_f"));
  p.head.emplace(o, p.embedding->matrix(), build.in("head"));
}

MemoryShape LanguageModel::memory_shape() const {
  const config::ModelOptions& o = parts_->options;
  return o.memory_length > 0 ? MemoryShape{o.n_layers, o.memory_length, o.d_model} : MemoryShape{};
}

Batch LanguageModel::example(std::int64_t rows, std::uint64_t seed) const {
  const config::ModelOptions& o = parts_->options;
  Batch batch;
  batch.tensors["tokens"] = random_ids(o.vocabulary_size, {rows, o.context_length + 1}, seed).to(device());
  batch.targets.assign(static_cast<std::size_t>(rows), o.context_length);
  batch.tokens = rows * o.context_length;
  return batch;
}

Loss LanguageModel::loss(const Batch& batch, Memory& memory, const nn::Context& context) const {
  const ops::ManyRows mode(context.split_invariant);
  const at::Tensor targets = batch.find("targets");
  if (batch.find("teacher").defined()) {
    const at::Tensor& tokens = batch.at("tokens");
    return layers().distil(targets.defined() ? tokens : tokens.slice(1, 0, -1),
                           targets.defined() ? targets : tokens.slice(1, 1), batch, memory, context);
  }
  return targets.defined() ? layers().loss(batch.at("tokens"), targets, memory, context)
                           : loss(batch.at("tokens"), memory, context);
}

Loss LanguageModel::loss(const at::Tensor& tokens, Memory& memory, const nn::Context& context) const {
  const ops::ManyRows mode(context.split_invariant);
  return layers().loss(tokens.slice(1, 0, -1), tokens.slice(1, 1), memory, context);
}

at::Tensor LanguageModel::logits(const at::Tensor& inputs, Memory& memory, const nn::Context& context) const {
  const ops::ManyRows mode(context.split_invariant);
  return layers().head->logits(layers().hidden(inputs, memory, context), context);
}

TokenScores LanguageModel::score(const at::Tensor& inputs, const at::Tensor& targets, Memory& memory,
                                 const nn::Context& context) const {
  const ops::ManyRows mode(context.split_invariant);
  constexpr std::int64_t kBlock = 1024;  // positions whose logits are computed at once
  const at::Tensor h = layers().hidden(inputs, memory, context).reshape({-1, layers().options.d_model});
  const at::Tensor all = targets.reshape({-1}), places = all.ge(0).nonzero().squeeze(1);
  TokenScores scores{.log_probability = at::empty(places.sizes(), h.options().dtype(at::kDouble)),
                     .likeliest = at::empty(places.sizes(), h.options().dtype(at::kBool))};
  for (std::int64_t begin = 0; begin < places.size(0); begin += kBlock) {
    const std::int64_t count = std::min(kBlock, places.size(0) - begin);
    const at::Tensor now = places.narrow(0, begin, count);
    const at::Tensor logits = layers().head->logits(h.index_select(0, now), context);
    const at::Tensor log_p = logits.to(at::promote_types(logits.scalar_type(), at::kFloat)).log_softmax(-1);
    const at::Tensor right = log_p.gather(1, all.index_select(0, now).unsqueeze(1)).squeeze(1);
    scores.log_probability.narrow(0, begin, count).copy_(right);
    scores.likeliest.narrow(0, begin, count).copy_(log_p.ge(right.unsqueeze(1)).sum(1).eq(1));
  }
  return scores;
}

DecodeState LanguageModel::start_decoding() const {
  DecodeState state;
  for (std::size_t layer = 0; layer < layers().n_layers(); ++layer) {
    if (layers().owners->owns(layer)) {
      state.caches.push_back(layers().block(layer).make_cache());
    }
  }
  return state;
}

at::Tensor LanguageModel::decode(std::span<const DecodeRow> rows, const nn::Context& context) const {
  const ops::ManyRows mode(context.split_invariant);
  const c10::InferenceMode no_graph;
  return layers().next_logits(layers().last_of(rows, context), context);
}

at::Tensor LanguageModel::decode_each(const DecodeRow& row, const nn::Context& context) const {
  const ops::ManyRows mode(context.split_invariant);
  const c10::InferenceMode no_graph;
  const Layers& p = layers();
  if (row.tokens.size() < 2) {
    return decode({&row, 1}, context);
  }
  const at::Tensor h = p.read_on(row, /*each=*/true, context);
  const std::int64_t before = h.size(1) - 1;
  const at::Tensor logits = p.head->logits(p.final_norm(h.narrow(1, 0, before), context).squeeze(0), context);
  return at::cat({logits, p.next_logits(h.narrow(1, before, 1), context)});
}

void LanguageModel::read(std::span<const DecodeRow> rows, const nn::Context& context) const {
  const ops::ManyRows mode(context.split_invariant);
  const c10::InferenceMode no_graph;
  layers().last_of(rows, context);
}

const LanguageModel& as_language_model(const Model& model, std::string_view what) {
  const auto* found = dynamic_cast<const LanguageModel*>(&model);
  if (found == nullptr) {
    user_error("{}: model.kind: must be language_model, got {}", what, config::name_of(model.options().kind));
  }
  return *found;
}

}  // namespace headroom::models
