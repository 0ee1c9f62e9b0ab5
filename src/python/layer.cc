#include "layer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "engine/models/block.h"
#include "engine/models/model_base.h"
#include "engine/models/vocabulary_layers.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/models/model.h"
#include "headroom/nn/mlp.h"

namespace headroom::python {
namespace {

// Returns the model options that differ from the defaults, in the form of set_key().
std::vector<std::string> settings_of(const config::Config& config) {
  const auto all = config::flatten(config), usual = config::flatten(config::Config{});
  std::vector<std::string> settings;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].second != usual[i].second && all[i].first.starts_with("model.")) {
      settings.push_back(all[i].first + "=" + all[i].second);
    }
  }
  return settings;
}

config::Config apply(config::Config config, const std::vector<std::string>& settings, const std::string& origin) {
  for (const std::string& setting : settings) {
    config.given[config::set_key(config, setting, origin)] = origin;
  }
  return config;
}

std::string text_of(const Layer& layer, const config::Config& config) {
  return to_json_line({{"kind", layer.kind},
                       {"causal", layer.causal},
                       {"cross", layer.cross},
                       {"index", layer.index},
                       {"settings", settings_of(config)}});
}

Layer parse(const std::string& text) {
  const Json json = parse_json(text, "layer");
  try {
    Layer layer{
        .kind = json.at("kind"), .causal = json.at("causal"), .cross = json.at("cross"), .index = json.at("index")};
    layer.model = apply({}, json.at("settings").get<std::vector<std::string>>(), "layer").model;
    return layer;
  } catch (const Json::exception&) {
    user_error("layer: must be a description that describe_layer() made, got {}", text);
  }
}

}  // namespace

nn::AttentionPlace Layer::place() const {
  if (index < 0 || index >= model.n_layers) {
    user_error("{}: layer must be in [0, n_layers={}), got {}", kind, model.n_layers, index);
  }
  return {.d_model = model.d_model,
          .n_layers = model.n_layers,
          .layer = index,
          .causal = causal,
          .cross = cross && kind == "attention",
          .window = causal ? model.of_layer(index).attention.window : 0,
          .context_length = model.context_length,
          .memory_length = model.memory_length};
}

config::ModelOptions Layer::built() const {
  config::ModelOptions options = model;
  if (kind == "ends") {
    options.n_layers = options.n_decoder_layers = options.n_groups = 0;
  }
  return options;
}

const Layer& layer_of(const std::string& text) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::unique_ptr<const Layer>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const Layer>& layer = known[text];
  if (layer == nullptr) {
    layer = std::make_unique<const Layer>(parse(text));
  }
  return *layer;
}

std::string describe_layer(Layer layer, const std::string& source, const std::vector<std::string>& settings,
                           const std::string& origin) {
  const config::Config config =
      apply(source.empty() ? config::Config{} : config::load_config(source), settings, origin);
  layer.model = config.model;
  config::ModelOptions checked = config.model;
  if (!layer.causal && !layer.cross && checked.kind == config::ModelKind::language_model) {
    checked.kind = config::ModelKind::masked_language_model;  // the default kind is causal
  }
  config::check(checked, origin);
  nn::Parameters unused;
  make_parameters(layer, unused, nn::ParameterSource(0, at::TensorOptions(at::kFloat).device(at::kMeta)));
  return text_of(layer, config);
}

std::string describe(const Layer& layer) {
  config::Config config;
  config.model = layer.model;
  return text_of(layer, config);
}

void make_parameters(const Layer& layer, nn::Parameters& parameters, const nn::ParameterSource& source) {
  if (layer.kind == "model" || layer.kind == "ends") {
    const auto model = models::make_model(layer.built(), source);
    parameters = model->parameters();
    return;
  }
  kind_of(layer).make(layer, models::make_builder(layer.model, parameters, source));
}

namespace {

void require_shape(const Layer& layer, const char* name, const at::Tensor& t, bool fits, const std::string& expected) {
  if (!fits) {
    fail("{}: {} must be {}, got {}", layer.kind, name, expected, c10::str(t.sym_sizes()));
  }
}

void check_tokens(const Layer& layer, const char* name, const at::Tensor& tokens) {
  require_shape(layer, name, tokens, tokens.dim() == 2, "[B, T]");
  if (tokens.scalar_type() != at::kLong) {
    fail("{}: {} must be int64, got {}", layer.kind, name, c10::toString(tokens.scalar_type()));
  }
}

// Throws Error unless t is [B, n, d_model] in the parameters' type, or in any floating type under autocast.
void check_vectors(const Layer& layer, const char* name, const at::Tensor& t, const at::Tensor& x,
                   const nn::Context& context, at::ScalarType type) {
  if (t.dim() != 3 || t.sym_size(0) != x.sym_size(0) || t.sym_size(2) != layer.model.d_model) {
    const std::string rows = &t == &x ? "B" : c10::str(x.sym_size(0));
    fail("{}: {} must be [{}, T, d_model={}], got {}", layer.kind, name, rows, layer.model.d_model,
         c10::str(t.sym_sizes()));
  }
  if (!t.is_floating_point() || (t.scalar_type() != type && !context.compute_dtype)) {
    fail("{}: {} must be {} as the parameters are, got {}", layer.kind, name, c10::toString(type),
         c10::toString(t.scalar_type()));
  }
}

void check_mask(const Layer& layer, const char* name, const at::Tensor& mask, const c10::SymInt& rows,
                const c10::SymInt& columns) {
  if (mask.dim() != 2 || mask.sym_size(0) != rows || mask.sym_size(1) != columns || mask.scalar_type() != at::kBool) {
    fail("{}: {} must be bool [{}, {}], got {} {}", layer.kind, name, c10::str(rows), c10::str(columns),
         c10::toString(mask.scalar_type()), c10::str(mask.sym_sizes()));
  }
}

// Checks the inputs of a layer that takes vectors.
void check(const Layer& layer, const Inputs& in, const nn::Builder& build, const nn::Context& context) {
  const at::ScalarType type = c10::typeMetaToScalarType(build.options().dtype());
  check_vectors(layer, "x", in.x, in.x, context, type);
  c10::SymInt keys = in.x.sym_size(1);
  if (in.memory) {
    check_vectors(layer, "memory", *in.memory, in.x, context, type);
    keys = keys + in.memory->sym_size(1);
  }
  if (in.source.has_value() != layer.cross) {
    fail("{}: {}", layer.kind,
         layer.cross ? "source must be given with cross=True" : "source must not be given without cross=True");
  }
  if (layer.cross && in.memory) {
    fail("{}: memory must not be given with cross=True", layer.kind);
  }
  for (const auto& [name, source] : {std::pair{"source", in.source}, std::pair{"source_value", in.source_value},
                                     std::pair{"routed_by", in.routed_by}}) {
    if (source) {
      check_vectors(layer, name, *source, in.x, context, type);
    }
  }
  if (layer.cross && layer.kind == "attention") {
    keys = in.source->sym_size(1);
  }
  if (in.valid_keys) {
    check_mask(layer, "valid_keys", *in.valid_keys, in.x.sym_size(0), keys);
  }
  if (in.valid_source) {
    if (!layer.cross) {
      fail("{}: valid_source must not be given without cross=True", layer.kind);
    }
    check_mask(layer, "valid_source", *in.valid_source, in.x.sym_size(0), in.source->sym_size(1));
  }
  if (in.valid_queries) {
    check_mask(layer, "valid_queries", *in.valid_queries, in.x.sym_size(0), in.x.sym_size(1));
  }
}

at::Tensor or_undefined(const std::optional<at::Tensor>& t) {
  return t.value_or(at::Tensor());
}

nn::Attention attention_of(const Layer& layer, const nn::Builder& build) {
  if (!layer.own().attention.has_heads()) {
    user_error("attention: n_heads must be above 0, got 0");
  }
  return nn::Attention(layer.own().attention, layer.place(), build);
}

std::vector<at::Tensor> run_attention(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                      const nn::Context& context) {
  check(layer, in, build, context);
  const nn::Attention attention = attention_of(layer, build);
  nn::AttentionInput input;
  input.x = nn::to_compute(in.x, context);
  input.source = nn::to_compute(in.memory ? at::cat({*in.memory, in.x}, 1) : in.source.value_or(in.x), context);
  if (in.source_value) {
    input.source_value = nn::to_compute(*in.source_value, context);
  }
  input.valid_keys = in.valid_keys;
  input.valid_queries = in.valid_queries;
  return {attention(input, context)};
}

std::unique_ptr<nn::Mlp> mlp_of(const Layer& layer, const nn::Builder& build) {
  return nn::make_mlp(layer.own().mlp, {.d_model = layer.model.d_model, .n_layers = layer.model.n_layers}, build);
}

std::vector<at::Tensor> run_mlp(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                const nn::Context& context) {
  check(layer, in, build, context);
  const auto mlp = mlp_of(layer, build);
  const at::Tensor routed_by = in.routed_by ? nn::to_compute(*in.routed_by, context) : at::Tensor();
  const at::Tensor x = nn::to_compute(in.x, context);
  context.show("x", [&] { return x; });
  return {context.observe("out", (*mlp)(x, layer.own().hidden_dropout(), context, routed_by, in.valid_queries))};
}

nn::NormLayer norm_of(const Layer& layer, const nn::Builder& build) {
  return {layer.model.norm, layer.model.norm_epsilon, layer.model.d_model, build};
}

std::vector<at::Tensor> run_norm(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                 const nn::Context& context) {
  check(layer, in, build, context);
  return {norm_of(layer, build)(in.x)};
}

models::Block block_of(const Layer& layer, const nn::Builder& build) {
  return layer.cross ? models::Block::with_cross_attention(layer.own(), layer.place(), build)
                     : models::Block(layer.own(), layer.place(), build);
}

std::vector<at::Tensor> run_block(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                  const nn::Context& context) {
  check(layer, in, build, context);
  models::BlockInput input;
  input.h = in.x;
  input.memory = or_undefined(in.memory);
  input.valid_keys = in.valid_keys;
  input.source = or_undefined(in.source);
  input.valid_source = in.valid_source;
  std::vector<at::Tensor> results = {block_of(layer, build)(input, context)};
  if (in.remember) {
    results.push_back(models::next_memory(input.memory, in.x, layer.model.memory_length));
  }
  return results;
}

models::Embedding embedding_of(const Layer& layer, const nn::Builder& build) {
  return {layer.model, build};
}

std::vector<at::Tensor> run_embedding(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                      const nn::Context& context) {
  check_tokens(layer, "tokens", in.x);
  return {context.observe("embedding", embedding_of(layer, build)(in.x, 0, context))};
}

// Returns the head of a language model. With tied embeddings its first parameter is the embedding matrix.
models::VocabularyHead head_of(const Layer& layer, const nn::Builder& build) {
  const config::ModelOptions& o = layer.model;
  return {o, o.tied_embeddings ? models::Embedding::make_matrix(o, build) : at::Tensor(), build};
}

std::vector<at::Tensor> run_head(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                 const nn::Context& context) {
  check(layer, in, build, context);
  const models::VocabularyHead head = head_of(layer, build);
  const at::Tensor x = nn::dropout(in.x, layer.model.dropout, context, "final");
  if (!in.targets) {
    return {head.logits(x, context)};
  }
  check_tokens(layer, "targets", *in.targets);
  const c10::SymIntArrayRef tokens = in.x.sym_sizes().slice(0, 2);
  require_shape(layer, "targets", *in.targets, in.targets->sym_sizes() == tokens,
                "of the tokens' shape " + c10::str(tokens));
  nn::Context with_losses = context;
  at::Tensor losses;
  with_losses.token_losses = in.each ? &losses : nullptr;
  const at::Tensor mean =
      head.cross_entropy(x.flatten(0, 1), in.targets->reshape({-1}), /*label_smoothing=*/0.0, with_losses);
  return {in.each ? losses : mean};
}

// Creates the layer only to create its parameters.
template <auto kMake>
void make(const Layer& layer, const nn::Builder& build) {
  kMake(layer, build);
}

constexpr LayerKind kKinds[] = {{"attention", make<attention_of>, run_attention},
                                {"mlp", make<mlp_of>, run_mlp},
                                {"norm", make<norm_of>, run_norm},
                                {"block", make<block_of>, run_block},
                                {"embedding", make<embedding_of>, run_embedding},
                                {"head", make<head_of>, run_head}};

}  // namespace

const LayerKind& kind_of(const Layer& layer) {
  const auto* found = std::ranges::find_if(kKinds, [&](const LayerKind& kind) { return layer.kind == kind.name; });
  if (found == std::end(kKinds)) {
    user_error("layer: unknown kind \"{}\"", layer.kind);
  }
  return *found;
}

}  // namespace headroom::python
