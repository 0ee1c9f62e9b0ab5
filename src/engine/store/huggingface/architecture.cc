#include "architecture.h"

#include <algorithm>
#include <array>
#include <functional>

#include "foundation/core/transformed.h"
#include "headroom/config/attention/output_gate_options.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"

namespace headroom::store {

std::span<const Architecture* const> architectures() {
  static const std::array kAll = {&gpt2(),        &gpt_neox(), &llama(),    &gemma3(),    &gpt_oss(),
                                  &deepseek_v2(), &jetmoe(),   &dcformer(), &qwen3_next()};
  return kAll;
}

at::Tensor Mapping::parameter_of(const at::Tensor& stored_tensor) const {
  at::Tensor values = view.empty() ? stored_tensor : stored_tensor.view(view);
  if (range) {
    values = values.narrow(range->axis, range->begin, range->length);
  }
  if (part) {
    values = values.select(part->first, part->second);
  }
  return order.empty() ? values : values.permute(order);
}

namespace {

// Returns the place of the mapping in a parameter, in the shape of parameter_of().
at::Tensor place_in(const Mapping& mapping, const at::Tensor& parameter, at::IntArrayRef shape) {
  const std::optional<Range>& place = mapping.place;
  return (place ? parameter.narrow(place->axis, place->begin, place->length) : parameter).view(shape);
}

}  // namespace

void Mapping::read(const at::Tensor& stored_tensor, at::Tensor& to) const {
  const at::Tensor values = parameter_of(stored_tensor);
  if (!to.defined()) {
    const at::IntArrayRef sizes = shape.empty() ? values.sizes() : at::IntArrayRef(shape);
    const bool half = at::isReducedFloatingType(values.scalar_type()) && sizes.size() > 1 && offset == 0.0;
    to = at::empty(sizes, at::TensorOptions(half ? values.scalar_type() : at::kFloat));
  } else if (to.scalar_type() != at::kFloat && to.scalar_type() != values.scalar_type()) {
    to = to.to(at::kFloat);
  }
  const at::Tensor place_of_values = place_in(*this, to, values.sizes());
  place_of_values.copy_(values);
  if (offset != 0.0) {
    place_of_values.add_(offset);
  }
}

void Mapping::write(const at::Tensor& from, const at::Tensor& stored_tensor) const {
  const at::Tensor values = parameter_of(stored_tensor);
  values.copy_(place_in(*this, from, values.sizes()));
  if (offset != 0.0) {
    values.sub_(offset);
  }
}

std::string first_of(std::initializer_list<Obstacle> obstacles) {
  for (const Obstacle& obstacle : obstacles) {
    if (obstacle.stands) {
      return obstacle.option;
    }
  }
  return {};
}

namespace {

// Only Qwen3-Next combines recurrent layers with gated attention, and it checks the gates itself.
bool has_recurrent_layer(const config::ModelOptions& o) {
  for (std::int64_t l = 0; l < o.n_layers; ++l) {
    if (o.of_layer(l).attention.score->is_recurrent()) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string common_obstacle(const config::ModelOptions& o) {
  const config::AttentionOptions &a = o.attention, plain;
  return first_of({{o.kind != config::ModelKind::language_model, "kind"},
                   {o.memory_length != 0, "memory_length"},
                   {o.n_groups != 0, "n_groups"},
                   {o.norm_position == config::NormPosition::post || o.norm_position == config::NormPosition::peri,
                    "norm_position"},
                   {o.head_bias, "head_bias"},
                   {!o.adaptive_cutoffs.empty(), "adaptive_cutoffs"},
                   {a.of<config::PositionOptions>().position_bias, "attention.position_bias"},
                   {a.of<config::OutputGateOptions>().exclusive, "attention.exclusive"},
                   {a.scale != plain.scale, "attention.scale"},
                   {a.gate_output != plain.gate_output && !has_recurrent_layer(o), "attention.gate_output"}});
}

std::string first_difference(const config::ModelOptions& a, const config::ModelOptions& b,
                             std::initializer_list<std::string_view> keys) {
  const std::vector<std::string> differing = config::differing_keys(a, b);
  for (const std::string_view key : keys) {
    if (std::ranges::find(differing, fmt::format("model.{}", key)) != differing.end()) {
      return std::string(key);
    }
  }
  return {};
}

config::ModelOptions Architecture::usual(const Json& keys) const {
  const SortedJson document = keys;
  return read(Settings(document, ""));
}

void check_groups(const Settings& s, const config::AttentionOptions& a) {
  s.quotient({"num_key_value_heads", a.n_kv_heads}, {"num_attention_heads", a.n_heads});
}

config::ModelOptions read_decoder(const Settings& s, const DecoderDefaults& usual) {
  config::ModelOptions o;
  o.vocabulary_size = s.size("vocab_size", usual.vocabulary_size);
  o.n_layers = s.size("num_hidden_layers", usual.n_layers);
  o.d_model = s.size("hidden_size", usual.d_model);
  o.context_length = s.size("max_position_embeddings", usual.context_length);
  o.norm = config::Norm::rms;
  o.norm_epsilon = s.epsilon("rms_norm_eps", usual.norm_epsilon);
  o.tied_embeddings = s.flag("tie_word_embeddings", usual.tied_embeddings);
  o.head_bias = false;
  if (usual.n_heads > 0) {
    o.attention.n_heads = s.size("num_attention_heads", usual.n_heads);
    o.attention.n_kv_heads = s.size("num_key_value_heads", usual.n_kv_heads);
    o.attention.d_head = s.size("head_dim", usual.d_head);
    check_groups(s, o.attention);
  }
  return o;
}

Json write_decoder(const config::ModelOptions& o, const char* kind, const char* name) {
  return {{"model_type", kind},
          {"architectures", {name}},
          {"num_hidden_layers", o.n_layers},
          {"hidden_size", o.d_model},
          {"num_attention_heads", o.attention.n_heads},
          {"num_key_value_heads", o.attention.kv_heads()},
          {"head_dim", o.attention.d_head},
          {"max_position_embeddings", o.context_length},
          {"intermediate_size", o.mlp.d_hidden},
          {"rms_norm_eps", o.norm_epsilon}};
}

std::vector<std::int64_t> windows_of(const config::ModelOptions& o) {
  std::vector<std::int64_t> windows;
  for (std::int64_t l = 0; l < o.n_layers; ++l) {
    windows.push_back(o.of_layer(l).attention.window);
  }
  return windows;
}

std::vector<std::int64_t> read_layer_types(const Settings& s, std::int64_t window, std::vector<std::int64_t> windows) {
  const std::vector<std::string> types = s.texts("layer_types");
  if (types.empty()) {
    return windows;
  }
  if (types.size() != windows.size()) {
    s.refuse("layer_types", fmt::format("must have {} entries, one for each layer", windows.size()));
  }
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const bool full = types[layer] == kFullAttention;
    if (!full && (types[layer] != kSlidingAttention || window == 0)) {
      s.refuse("layer_types", window == 0 ? "must be full_attention without a sliding_window"
                                          : "must be full_attention or sliding_attention");
    }
    windows[layer] = full ? 0 : window;
  }
  return windows;
}

Json layer_types(const std::vector<std::int64_t>& windows) {
  return transformed(windows, [](std::int64_t window) { return window > 0 ? kSlidingAttention : kFullAttention; });
}

void set_layers(config::ModelOptions& o, const std::vector<config::LayerOptions>& keys) {
  const auto alike = [&](std::size_t a, std::size_t b) {
    return keys[a].attention == keys[b].attention && keys[a].mlp == keys[b].mlp;
  };
  std::size_t period = 1;
  const auto repeats = [&] {
    for (std::size_t layer = period; layer < keys.size(); ++layer) {
      if (!alike(layer, layer - period)) {
        return false;
      }
    }
    return true;
  };
  while (!repeats()) {
    ++period;
  }
  o.layers.clear();
  for (std::size_t layer = 0; layer < period; ++layer) {
    if (layer > 0 && alike(layer, layer - 1)) {
      ++o.layers.back().repeat;
    } else {
      o.layers.push_back(keys[layer]);
    }
  }
}

void set_windows(config::ModelOptions& o, const std::vector<std::int64_t>& windows) {
  if (std::ranges::adjacent_find(windows, std::ranges::not_equal_to()) == windows.end()) {
    o.attention.window = windows.front();
    return;
  }
  std::vector<config::LayerOptions> keys = transformed(windows, [](std::int64_t window) {
    return config::LayerOptions{.repeat = 1, .attention = {{"window", fmt::format("{}", window)}}, .mlp = {}};
  });
  set_layers(o, keys);
}

std::vector<Mapping> Architecture::mappings(const config::ModelOptions& o) const {
  std::vector<Mapping> mappings = {same("embed", names_.embedding + ".weight", {o.vocabulary_size, o.d_model})};
  if (!names_.positions.empty()) {
    mappings.push_back(same("position", names_.positions + ".weight", {o.context_length, o.d_model}));
  }
  for (std::int64_t l = 0; l < o.n_layers; ++l) {
    map_layer(mappings, o.of_layer(l), fmt::format("layer{}.", l), fmt::format("{}{}.", names_.layers, l));
  }
  map_norm(mappings, o, "norm_f", names_.last_norm, names_.norm_offset);
  if (!o.tied_embeddings) {
    mappings.push_back(transposed("head.w", names_.head + ".weight", o.d_model, o.vocabulary_size));
  }
  return mappings;
}

std::vector<Mapping> Architecture::redundant(const config::ModelOptions& o) const {
  std::vector<Mapping> mappings;
  for (std::int64_t l = 0; l < o.n_layers; ++l) {
    map_redundant(mappings, o.of_layer(l), fmt::format("layer{}.", l), fmt::format("{}{}.", names_.layers, l));
  }
  return mappings;
}

void map_norm(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& parameter,
              const std::string& tensor, double offset) {
  mappings.push_back(same(parameter + ".scale", tensor + ".weight", {o.d_model}));
  mappings.back().offset = offset;
  if (o.norm == config::Norm::layer) {
    mappings.push_back(same(parameter + ".bias", tensor + ".bias", {o.d_model}));
  }
}

void map_linear(std::vector<Mapping>& mappings, const LinearNames& ours, const StoredLinear& theirs) {
  const std::string weight = theirs.name + ".weight", parameter = ours.prefix + "w" + ours.suffix;
  mappings.push_back(theirs.stored == Stored::out_in ? transposed(parameter, weight, theirs.in, theirs.out)
                                                     : same(parameter, weight, {theirs.in, theirs.out}));
  if (theirs.bias) {
    mappings.push_back(same(ours.prefix + "b" + ours.suffix, theirs.name + ".bias", {theirs.out}));
  }
}

void map_heads(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
               const std::string& theirs) {
  const config::AttentionOptions& a = o.attention;
  const std::int64_t d = o.d_model, e = a.d_head;
  for (const char which : {'q', 'k', 'v'}) {
    const std::int64_t h = which == 'q' ? a.n_heads : a.kv_heads();
    const std::string name = fmt::format("{}{}_proj", theirs, which);
    mappings.push_back({.parameter = fmt::format("{}w_{}", ours, which),
                        .tensor = name + ".weight",
                        .stored = {h * e, d},
                        .view = {h, e, d},
                        .order = {2, 0, 1}});
    if (a.bias) {
      Mapping bias = same(fmt::format("{}b_{}", ours, which), name + ".bias", {h * e});
      bias.view = {h, e};
      mappings.push_back(bias);
    }
  }
  map_output(mappings, d, a.n_heads, e, ours, theirs + "o_proj.weight");
  if (a.bias) {
    mappings.push_back(same(ours + "b_o", theirs + "o_proj.bias", {d}));
  }
}

void map_output(std::vector<Mapping>& mappings, std::int64_t d_model, std::int64_t heads, std::int64_t d_head,
                const std::string& ours, std::string tensor) {
  mappings.push_back({.parameter = ours + "w_o",
                      .tensor = std::move(tensor),
                      .stored = {d_model, heads * d_head},
                      .view = {d_model, heads, d_head},
                      .order = {1, 2, 0}});
}

void map_qk_norms(std::vector<Mapping>& mappings, std::int64_t d_head, const std::string& ours,
                  const std::string& theirs, double offset) {
  for (const char* which : {"q_norm", "k_norm"}) {
    mappings.push_back(same(ours + which, fmt::format("{}{}.weight", theirs, which), {d_head}));
    mappings.back().offset = offset;
  }
}

void map_gated_mlp(std::vector<Mapping>& mappings, const config::MlpOptions& mlp, std::int64_t d_model,
                   const std::string& ours, const std::string& theirs) {
  for (const char* which : {"gate", "up", "down"}) {
    const bool down = which == std::string_view("down");
    const std::int64_t in = down ? mlp.d_hidden : d_model, out = down ? d_model : mlp.d_hidden;
    map_linear(mappings, {ours, fmt::format("_{}", which)},
               {fmt::format("{}{}_proj", theirs, which), in, out, mlp.bias, Stored::out_in});
  }
}

void map_experts(std::vector<Mapping>& mappings, const config::MlpOptions& mlp, std::int64_t d_model,
                 const std::string& ours, const std::string& theirs) {
  const std::int64_t d = d_model, g = mlp.d_hidden, n = mlp.n_experts;
  mappings.push_back(transposed(ours + "select", theirs + "gate.weight", d, n));
  for (std::int64_t expert = 0; expert < n; ++expert) {
    for (const char* which : {"gate", "up", "down"}) {
      const bool down = which == std::string_view("down");
      const std::int64_t in = down ? g : d, out = down ? d : g;
      Mapping one = transposed(fmt::format("{}w_{}", ours, which),
                               fmt::format("{}experts.{}.{}_proj.weight", theirs, expert, which), in, out);
      one.shape = {n, in, out};
      one.place = {0, expert, 1};
      mappings.push_back(std::move(one));
    }
  }
}

void map_shared_expert(std::vector<Mapping>& mappings, const config::MlpOptions& mlp, std::int64_t d_model,
                       const std::string& ours, const std::string& theirs) {
  config::MlpOptions shared = mlp;
  shared.d_hidden = mlp.d_shared;
  shared.bias = false;
  map_gated_mlp(mappings, shared, d_model, ours + "shared.", theirs);
}

Mapping transposed(std::string parameter, std::string tensor, std::int64_t in, std::int64_t out) {
  return {.parameter = std::move(parameter), .tensor = std::move(tensor), .stored = {out, in}, .order = {1, 0}};
}

Mapping same(std::string parameter, std::string tensor, std::vector<std::int64_t> shape) {
  return {.parameter = std::move(parameter), .tensor = std::move(tensor), .stored = std::move(shape)};
}

}  // namespace headroom::store
