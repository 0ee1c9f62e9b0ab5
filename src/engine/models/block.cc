#include "block.h"

#include "headroom/core/error.h"

namespace headroom::models {
namespace {

// Returns the mask of the queries, which are the last T keys.
std::optional<at::Tensor> valid_queries(const BlockInput& input) {
  if (!input.valid_keys) {
    return std::nullopt;
  }
  const c10::SymInt t = input.h.sym_size(1);
  return input.valid_keys->narrow_symint(1, input.valid_keys->sym_size(1) - t, t);
}

// Memory and tokens are concatenated after the norm, in the compute type: concatenating them before the norm would save
// a second copy of both for the backward pass.
at::Tensor after(const at::Tensor& memory, const at::Tensor& x, const nn::Context& context) {
  return memory.defined() ? at::cat({nn::to_compute(memory, context), x}, 1) : x;
}

bool has_mlp(const config::ModelOptions& o) {
  return o.mlp.kind != config::MlpKind::none;
}

// Returns a norm with parameters "norm_<name>.*" if the block has it.
std::optional<nn::NormLayer> make_norm(bool exists, const config::ModelOptions& o, const char* name,
                                       const nn::Builder& build) {
  if (!exists) {
    return std::nullopt;
  }
  return nn::NormLayer(o.norm, o.norm_epsilon, o.d_model, build.in(fmt::format("norm_{}", name)));
}

std::optional<nn::Attention> make_attention(const config::ModelOptions& o, const nn::AttentionPlace& place,
                                            const nn::Builder& build) {
  if (!o.attention.has_heads()) {
    return std::nullopt;
  }
  return nn::Attention(o.attention, place, build.in("attention"));
}

// Applies the norm, if any, to the output, which may be in the compute type.
at::Tensor normed(const std::optional<nn::NormLayer>& norm, const at::Tensor& output) {
  return norm ? (*norm)(output.to(norm->type())) : output;
}

}  // namespace

Block::Block(const config::ModelOptions& o, const nn::AttentionPlace& place, const nn::Builder& build)
    : arrangement_(o.arrangement),
      norm_position_(o.norm_position),
      dropout_(o.dropout),
      hidden_dropout_(o.hidden_dropout()),
      norm_1_(make_norm(o.attention.has_heads(), o, "1", build)),
      attention_(make_attention(o, place, build)),
      output_norm_1_(make_norm(o.output_norms && o.attention.has_heads(), o, "1_out", build)),
      norm_2_(make_norm(has_mlp(o), o, "2", build)),
      mlp_(has_mlp(o) ? nn::make_mlp(o.mlp, {.d_model = o.d_model, .n_layers = o.n_layers}, build.in("ffn")) : nullptr),
      output_norm_2_(make_norm(o.output_norms && has_mlp(o), o, "2_out", build)) {
  if (arrangement_ == config::Arrangement::parallel && norm_position_ != config::NormPosition::pre) {
    user_error(
        "model.norm_position: must be pre with arrangement = \"parallel\", whose two halves read the same input, got "
        "{}",
        config::name_of(norm_position_));
  }
}

Block Block::with_cross_attention(const config::ModelOptions& o, const nn::AttentionPlace& place,
                                  const nn::Builder& build) {
  if (o.norm_position == config::NormPosition::peri) {
    user_error("model.norm_position: must be pre or post with cross-attention, got peri");
  }
  Block block(o, place, build);
  nn::AttentionPlace across = place;
  across.causal = false;
  across.cross = true;
  across.window = 0;
  block.cross_.emplace(Cross{nn::NormLayer(o.norm, o.norm_epsilon, o.d_model, build.in("norm_cross")),
                             nn::Attention(o.attention.across_sequences(), across, build.in("cross")),
                             make_norm(o.output_norms, o, "cross_out", build)});
  return block;
}

at::Tensor Block::attend(const at::Tensor& x, const at::Tensor& memory, const BlockInput& input,
                         const nn::Context& context, const at::Tensor& values) const {
  nn::AttentionInput attention;
  attention.x = nn::to_compute(x, context);
  attention.source = after(memory, attention.x, context);
  attention.source_value = values;
  attention.valid_keys = input.valid_keys;
  attention.valid_queries = valid_queries(input);
  attention.caches = input.caches;
  attention.shared_keys = input.shared_keys;
  const at::Tensor output = normed(output_norm_1_, (*attention_)(attention, context.in("attention")));
  return nn::dropout(output, dropout_, context, "attention");
}

at::Tensor Block::attend_across(const at::Tensor& h, const BlockInput& input, const nn::Context& context) const {
  const bool decodes = !input.cross_caches.empty();
  if (!decodes && !input.source.defined()) {
    fail("block: cross-attention needs a source");
  }
  nn::AttentionInput attention;
  attention.x = nn::to_compute(h, context);
  attention.source = decodes ? at::Tensor() : nn::to_compute(input.source, context);
  attention.valid_keys = input.valid_source;
  attention.valid_queries = valid_queries(input);
  attention.caches = input.cross_caches;
  const at::Tensor output = normed(cross_->output_norm, cross_->attention(attention, context.in("cross")));
  return nn::dropout(output, dropout_, context, "cross");
}

void Block::read_source(const at::Tensor& source, const std::optional<at::Tensor>& valid,
                        nn::AttentionCache& cross_cache, const nn::Context& context) const {
  cross_->attention.read_source(nn::to_compute(source, context), valid, cross_cache, context.in("cross"));
}

at::Tensor Block::feed_forward(const at::Tensor& x, const BlockInput& input, const nn::Context& context,
                               const at::Tensor& routed_by) const {
  const at::Tensor rows = nn::to_compute(x, context);
  const at::Tensor router_rows = routed_by.defined() ? nn::to_compute(routed_by, context) : at::Tensor();
  const nn::Context inner = context.in("ffn");
  inner.show("x", [&] { return rows; });
  const at::Tensor output = normed(
      output_norm_2_, inner.observe("out", (*mlp_)(rows, hidden_dropout_, inner, router_rows, valid_queries(input))));
  return nn::dropout(output, dropout_, context, "ffn");
}

at::Tensor Block::normed_memory(const BlockInput& input) const {
  return input.memory.defined() ? (*norm_1_)(input.memory) : at::Tensor();
}

at::Tensor Block::peri_norm(const BlockInput& input, const nn::Context& context) const {
  at::Tensor h = input.h;
  if (attention_) {
    const at::Tensor memory = normed_memory(input);
    const at::Tensor values = after(input.memory, nn::to_compute(h, context), context);
    h = nn::add_to_stream(h, attend((*norm_1_)(h, context), memory, input, context, values));
  }
  return context.observe("out", nn::add_to_stream(h, feed_forward(h, input, context, (*norm_2_)(h, context))));
}

at::Tensor Block::post_norm(const BlockInput& input, const nn::Context& context) const {
  at::Tensor h = input.h;
  if (attention_) {
    h = (*norm_1_)(nn::add_to_stream(h, attend(h, input.memory, input, context)));
  }
  if (cross_) {
    h = cross_->norm(nn::add_to_stream(h, attend_across(h, input, context)));
  }
  if (mlp_ != nullptr) {
    h = (*norm_2_)(nn::add_to_stream(h, feed_forward(h, input, context)));
  }
  return context.observe("out", std::move(h));
}

at::Tensor Block::operator()(const BlockInput& input, const nn::Context& context) const {
  if (norm_position_ == config::NormPosition::post) {
    return post_norm(input, context);
  }
  if (norm_position_ == config::NormPosition::peri) {
    return peri_norm(input, context);
  }
  const bool parallel = arrangement_ == config::Arrangement::parallel;
  at::Tensor h = input.h;
  if (attention_) {
    const at::Tensor memory = normed_memory(input);
    h = nn::add_to_stream(h, attend((*norm_1_)(h, context), memory, input, context));
  }
  if (cross_) {
    h = nn::add_to_stream(h, attend_across(cross_->norm(parallel ? input.h : h, context), input, context));
  }
  if (mlp_ != nullptr) {
    h = nn::add_to_stream(h, feed_forward((*norm_2_)(parallel ? input.h : h, context), input, context));
  }
  return context.observe("out", std::move(h));
}

KeyOwners::KeyOwners(const config::ModelOptions& options, std::int64_t n_layers)
    : owners_(options.key_owners(n_layers)), shared_(owners_.size(), false) {
  std::size_t caches = 0;
  for (std::size_t layer = 0; layer < owners_.size(); ++layer) {
    cache_index_.push_back(caches);
    if (owns(layer)) {
      ++caches;
    } else if (owners_[layer] >= 0) {
      shared_[static_cast<std::size_t>(owners_[layer])] = true;
    }
  }
}

std::vector<ops::SequenceKeys>* KeyOwners::find(std::size_t layer, Shared& all) const {
  const std::int64_t owner = owners_[layer];
  return owner >= 0 && shared_[static_cast<std::size_t>(owner)] ? &all[owner] : nullptr;
}

at::Tensor next_memory(const at::Tensor& memory, const at::Tensor& h, std::int64_t keep) {
  at::Tensor tokens = h.detach();
  if (memory.defined() && tokens.sym_size(1) < keep) {
    tokens = at::cat({memory, tokens}, 1);
  }
  return tokens.sym_size(1) > keep ? tokens.narrow_symint(1, tokens.sym_size(1) - keep, keep).contiguous() : tokens;
}

Encoder::Encoder(const config::ModelOptions& o, bool final_norm, const nn::Builder& build)
    : n_layers_(o.n_layers), owners_(o, o.n_layers) {
  for (std::int64_t layer = 0; layer < o.distinct_layers(); ++layer) {
    const nn::AttentionPlace place{.d_model = o.d_model,
                                   .n_layers = o.n_layers,
                                   .layer = layer,
                                   .causal = false,
                                   .context_length = o.context_length};
    blocks_.emplace_back(o.of_layer(layer), place, build.in(fmt::format("layer{}", layer)));
  }
  if (final_norm) {
    norm_f_.emplace(o.norm, o.last_norm_epsilon(), o.d_model, build.in("norm_f"));
  }
}

at::Tensor Encoder::operator()(at::Tensor h, const at::Tensor& valid, const nn::Context& context) const {
  BlockInput input;
  input.h = context.observe("embedding", std::move(h));
  if (valid.defined()) {
    input.valid_keys = valid;
  }
  KeyOwners::Shared shared;
  for (std::int64_t layer = 0; layer < n_layers_; ++layer) {
    const Block& block = blocks_[static_cast<std::size_t>(layer) % blocks_.size()];
    input.shared_keys = owners_.find(static_cast<std::size_t>(layer), shared);
    input.h = block(input, context.in(fmt::format("layer{}", layer)));
  }
  return norm_f_ ? context.observe("norm_f", (*norm_f_)(input.h)) : input.h;
}

void check_tokens(const char* model, const at::Tensor& tokens, const at::Tensor& valid) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong) {
    fail("{}: tokens must be [B, T] int64, got {} dimensions of {}", model, tokens.dim(),
         at::toString(tokens.scalar_type()));
  }
  if (valid.defined() && (valid.sizes() != tokens.sizes() || valid.scalar_type() != at::kBool)) {
    fail("{}: valid must be bool with the tokens' shape", model);
  }
}

}  // namespace headroom::models
