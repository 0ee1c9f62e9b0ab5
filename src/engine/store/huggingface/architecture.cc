#include "architecture.h"

#include <algorithm>
#include <array>

#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::store {

std::span<const Architecture* const> architectures() {
  static const std::array kAll = {&gpt2(), &gpt_neox(), &llama(), &qwen3_next()};
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
    to = at::empty(shape.empty() ? values.sizes() : at::IntArrayRef(shape), at::TensorOptions(at::kFloat));
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

std::string common_obstacle(const config::ModelOptions& o) {
  const config::AttentionOptions &a = o.attention, plain;
  return first_of({{o.kind != config::ModelKind::language_model, "kind"},
                   {o.memory_length != 0, "memory_length"},
                   {o.norm_position != config::NormPosition::pre, "norm_position"},
                   {o.head_bias, "head_bias"},
                   {o.scaled_embeddings, "scaled_embeddings"},
                   {!o.adaptive_cutoffs.empty(), "adaptive_cutoffs"},
                   {o.mlp.kind == config::MlpKind::experts, "mlp.kind"},
                   {a.projection != plain.projection, "attention.projection"},
                   {a.composition != plain.composition, "attention.composition"},
                   {a.of<config::PositionOptions>().position_bias, "attention.position_bias"},
                   {a.scale != plain.scale, "attention.scale"}});
}

std::string dense_obstacle(const config::ModelOptions& o) {
  const config::AttentionOptions &a = o.attention, plain;
  return first_of({{!o.layers.empty(), "layers"},
                   {a.score != plain.score, "attention.score"},
                   {a.qk_norm, "attention.qk_norm"},
                   {a.gate_output != plain.gate_output, "attention.gate_output"}});
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

void map_gated_mlp(std::vector<Mapping>& mappings, const config::MlpOptions& mlp, std::int64_t d_model,
                   const std::string& ours, const std::string& theirs) {
  for (const char* which : {"gate", "up", "down"}) {
    const bool down = which == std::string_view("down");
    const std::int64_t in = down ? mlp.d_hidden : d_model, out = down ? d_model : mlp.d_hidden;
    map_linear(mappings, {ours, fmt::format("_{}", which)},
               {fmt::format("{}{}_proj", theirs, which), in, out, mlp.bias, Stored::out_in});
  }
}

Mapping transposed(std::string parameter, std::string tensor, std::int64_t in, std::int64_t out) {
  return {.parameter = std::move(parameter), .tensor = std::move(tensor), .stored = {out, in}, .order = {1, 0}};
}

Mapping same(std::string parameter, std::string tensor, std::vector<std::int64_t> shape) {
  return {.parameter = std::move(parameter), .tensor = std::move(tensor), .stored = std::move(shape)};
}

}  // namespace headroom::store
