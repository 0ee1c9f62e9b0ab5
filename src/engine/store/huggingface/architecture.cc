#include "architecture.h"

#include <algorithm>
#include <array>

#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"

namespace headroom::store {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, blank));
    text.remove_prefix(std::min(blank + 1, text.size()));
  }
  return words;
}

}  // namespace

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
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
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

config::ModelOptions Architecture::read(const Settings& s) const {
  config::ModelOptions o;
  Keys keys(&s);
  describe(keys, o, s.text("model_type", ""));
  return o;
}

Json Architecture::write(config::ModelOptions o, const std::string& kind) const {
  Keys keys(nullptr);
  o.attention.n_kv_heads = o.attention.kv_heads();
  describe(keys, o, kind);
  return keys.written();
}

void check_groups(const Settings& s, const config::AttentionOptions& a) {
  s.quotient({"num_key_value_heads", a.n_kv_heads}, {"num_attention_heads", a.n_heads});
}

void describe_decoder(Keys& k, config::ModelOptions& o, const DecoderDefaults& usual) {
  k.size("vocab_size", o.vocabulary_size, usual.vocabulary_size);
  k.size("num_hidden_layers", o.n_layers, usual.n_layers);
  k.size("hidden_size", o.d_model, usual.d_model);
  k.size("max_position_embeddings", o.context_length, usual.context_length);
  k.epsilon("rms_norm_eps", o.norm_epsilon, usual.norm_epsilon);
  k.flag("tie_word_embeddings", o.tied_embeddings, usual.tied_embeddings);
  k.always(o.norm, config::Norm::rms);
  k.always(o.head_bias, false);
  if (usual.n_heads > 0) {
    k.size("num_attention_heads", o.attention.n_heads, usual.n_heads);
    k.size("num_key_value_heads", o.attention.n_kv_heads, usual.n_kv_heads);
    k.size("head_dim", o.attention.d_head, usual.d_head);
    if (k.given() != nullptr) {
      check_groups(*k.given(), o.attention);
    }
  }
}

void describe_parallel(Keys& k, config::ModelOptions& o) {
  bool parallel = o.arrangement == config::Arrangement::parallel;
  k.flag("use_parallel_residual", parallel, true);
  k.always(o.arrangement, parallel ? config::Arrangement::parallel : config::Arrangement::sequential);
}

std::vector<std::int64_t> windows_of(const config::ModelOptions& o) {
  std::vector<std::int64_t> windows;
  for (std::int64_t l = 0; l < o.n_layers; ++l) {
    windows.push_back(o.of_layer(l).attention.window);
  }
  return windows;
}

std::vector<std::int64_t> read_windows(const Settings& s, std::int64_t n_layers, std::int64_t window,
                                       const std::function<bool(std::int64_t layer)>& is_local) {
  std::vector<std::int64_t> windows;
  for (std::int64_t layer = 0; layer < n_layers; ++layer) {
    windows.push_back(is_local(layer) ? window : 0);
  }
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
  std::vector<Mapping> all;
  MappingList whole(all, o, "", "");
  whole.add("embed", names_.embedding + ".weight", "v d");
  if (!names_.positions.empty()) {
    whole.add("position", names_.positions + ".weight", "c d");
  }
  for (std::int64_t l = 0; l < o.n_layers; ++l) {
    const config::ModelOptions own = o.of_layer(l);
    MappingList layer(all, own, fmt::format("layer{}.", l), fmt::format("{}{}.", names_.layers, l));
    map_layer(layer, own);
  }
  whole.norm("norm_f", names_.last_norm, names_.norm_offset);
  if (!o.tied_embeddings) {
    whole.add("head.w", names_.head + ".weight", "v d -> d v");
  }
  return all;
}

std::vector<Mapping> Architecture::redundant(const config::ModelOptions& o) const {
  std::vector<Mapping> all;
  for (std::int64_t l = 0; l < o.n_layers; ++l) {
    const config::ModelOptions own = o.of_layer(l);
    MappingList layer(all, own, fmt::format("layer{}.", l), fmt::format("{}{}.", names_.layers, l));
    map_redundant(layer, own);
  }
  return all;
}

MappingList::MappingList(std::vector<Mapping>& all, const config::ModelOptions& o, std::string ours, std::string theirs)
    : all_(all), o_(o), ours_(std::move(ours)), theirs_(std::move(theirs)), sizes_{{'v', o.vocabulary_size},
                                                                                   {'c', o.context_length},
                                                                                   {'d', o.d_model},
                                                                                   {'h', o.attention.n_heads},
                                                                                   {'k', o.attention.kv_heads()},
                                                                                   {'e', o.attention.d_head},
                                                                                   {'w', o.attention.value_width()},
                                                                                   {'g', o.mlp.d_hidden},
                                                                                   {'n', o.mlp.n_experts}} {}

Mapping& MappingList::add(const std::string& parameter, const std::string& tensor, std::string_view pattern) {
  Mapping mapping{.parameter = parameter.empty() ? "" : ours_ + parameter, .tensor = theirs_ + tensor, .stored = {}};
  const std::size_t arrow = pattern.find(" -> ");
  std::vector<std::string_view> axes;  // of the view, without the selected ones
  bool inside = false;                 // parentheses, after their first axis
  for (const std::string_view word : words_of(pattern.substr(0, arrow))) {
    const bool opens = word.starts_with('('), closes = word.ends_with(')');
    const std::string_view axis = word.substr(opens ? 1 : 0, word.size() - (opens ? 1 : 0) - (closes ? 1 : 0));
    const std::size_t colon = axis.find(':');
    const std::string_view name = axis.substr(0, colon);
    const std::int64_t size = whole_number(name).value_or(0) > 0 ? *whole_number(name) : sizes_.at(name.front());
    inside ? void(mapping.stored.back() *= size) : mapping.stored.push_back(size);
    inside = (inside || opens) && !closes;
    if (colon != std::string_view::npos) {
      mapping.parts.emplace_back(std::ssize(mapping.view), whole_number(axis.substr(colon + 1)).value());
    } else {
      axes.push_back(name);
    }
    mapping.view.push_back(size);
  }
  if (arrow != std::string_view::npos) {
    for (const std::string_view name : words_of(pattern.substr(arrow + 4))) {
      mapping.order.push_back(std::ranges::find(axes, name) - axes.begin());
    }
  }
  return all_.emplace_back(std::move(mapping));
}

void MappingList::linear(const std::string& parameter, const std::string& tensor, std::string_view matrix,
                         const char* bias) {
  add(fmt::format(fmt::runtime(parameter), 'w'), tensor + ".weight", matrix);
  if (bias != nullptr) {
    add(fmt::format(fmt::runtime(parameter), 'b'), tensor + ".bias", bias);
  }
}

void MappingList::norm(const std::string& parameter, const std::string& tensor, double offset) {
  add(parameter + ".scale", tensor + ".weight", "d").offset = offset;
  if (o_.norm == config::Norm::layer) {
    add(parameter + ".bias", tensor + ".bias", "d");
  }
}

void MappingList::heads(bool output_bias, double norm_offset) {
  const config::AttentionOptions& a = o_.attention;
  linear("attention.{}_q", "self_attn.q_proj", "(h e) d -> d h e", a.bias ? "(h e)" : nullptr);
  linear("attention.{}_k", "self_attn.k_proj", "(k e) d -> d k e", a.bias ? "(k e)" : nullptr);
  linear("attention.{}_v", "self_attn.v_proj", "(k e) d -> d k e", a.bias ? "(k e)" : nullptr);
  linear("attention.{}_o", "self_attn.o_proj", "d (h e) -> h e d", a.bias && output_bias ? "d" : nullptr);
  all_.back().droppable = a.bias && output_bias;  // a qwen2 that an earlier version imported has zeros
  if (a.qk_norm) {
    add("attention.q_norm", "self_attn.q_norm.weight", "e").offset = norm_offset;
    add("attention.k_norm", "self_attn.k_norm.weight", "e").offset = norm_offset;
  }
}

void MappingList::gated_mlp(const std::string& parameter, const std::string& tensor) {
  const bool bias = o_.mlp.kind == config::MlpKind::gated && o_.mlp.bias;
  linear(parameter + "{}_gate", tensor + "gate_proj", "g d -> d g", bias ? "g" : nullptr);
  linear(parameter + "{}_up", tensor + "up_proj", "g d -> d g", bias ? "g" : nullptr);
  linear(parameter + "{}_down", tensor + "down_proj", "d g -> g d", bias ? "d" : nullptr);
}

void MappingList::experts(const std::string& shared) {
  const std::int64_t d = o_.d_model, g = o_.mlp.d_hidden, n = o_.mlp.n_experts;
  add("ffn.select", "mlp.gate.weight", "n d -> d n");
  for (std::int64_t expert = 0; expert < n; ++expert) {
    for (const char* which : {"gate", "up", "down"}) {
      const bool down = which == std::string_view("down");
      Mapping& one = add(fmt::format("ffn.w_{}", which), fmt::format("mlp.experts.{}.{}_proj.weight", expert, which),
                         down ? "d g -> g d" : "g d -> d g");
      one.shape = down ? std::vector{n, g, d} : std::vector{n, d, g};
      one.place = {0, expert, 1};
    }
  }
  set('g', o_.mlp.d_shared);
  gated_mlp("ffn.shared.", shared);
  set('g', g);
}

}  // namespace headroom::store
