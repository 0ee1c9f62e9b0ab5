#include "architecture.h"

#include <array>

#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::store {

std::span<const Architecture* const> architectures() {
  static const std::array<const Architecture*, 3> kAll = {&gpt2(), &gpt_neox(), &llama()};
  return kAll;
}

at::Tensor Link::in(const at::Tensor& tensor_of_file) const {
  at::Tensor place = view.empty() ? tensor_of_file : tensor_of_file.view(view);
  if (part) {
    place = place.select(part->first, part->second);
  }
  return order.empty() ? place : place.permute(order);
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
  const config::ModelOptions usual;
  return first_of({{o.kind != config::ModelKind::language_model, "kind"},
                   {o.memory_length != 0, "memory_length"},
                   {o.norm_position != usual.norm_position, "norm_position"},
                   {o.head_bias, "head_bias"},
                   {!o.adaptive_cutoffs.empty(), "adaptive_cutoffs"},
                   {o.mlp.kind == config::MlpKind::experts, "mlp.kind"},
                   {a.projection.name() != plain.projection.name(), "attention.projection"},
                   {a.score.name() != plain.score.name(), "attention.score"},
                   {a.composition.name() != plain.composition.name(), "attention.composition"},
                   {a.position_bias, "attention.position_bias"},
                   {a.scale != plain.scale, "attention.scale"},
                   {a.qk_norm, "attention.qk_norm"}});
}

std::vector<Link> Architecture::links(const config::ModelOptions& o) const {
  const Outside names = outside();
  std::vector<Link> links = {same("embed", names.embedding + ".weight", {o.vocabulary_size, o.d_model})};
  if (!names.positions.empty()) {
    links.push_back(same("position", names.positions + ".weight", {o.context_length, o.d_model}));
  }
  for (std::int64_t l = 0; l < o.n_layers; ++l) {
    link_layer(links, o, fmt::format("layer{}.", l), fmt::format("{}{}.", names.layers, l));
  }
  link_norm(links, o, "norm_f", names.last_norm);
  if (!o.tied_embeddings) {
    links.push_back(transposed("head.w", names.head + ".weight", o.d_model, o.vocabulary_size));
  }
  return links;
}

void link_norm(std::vector<Link>& links, const config::ModelOptions& o, const std::string& parameter,
               const std::string& tensor) {
  links.push_back(same(parameter + ".scale", tensor + ".weight", {o.d_model}));
  if (o.norm == config::Norm::layer) {
    links.push_back(same(parameter + ".bias", tensor + ".bias", {o.d_model}));
  }
}

Link transposed(std::string parameter, std::string tensor, std::int64_t in, std::int64_t out) {
  return {.parameter = std::move(parameter),
          .tensor = std::move(tensor),
          .stored = {out, in},
          .view = {},
          .part = {},
          .order = {1, 0}};
}

Link same(std::string parameter, std::string tensor, std::vector<std::int64_t> shape) {
  return {.parameter = std::move(parameter),
          .tensor = std::move(tensor),
          .stored = std::move(shape),
          .view = {},
          .part = {},
          .order = {}};
}

}  // namespace headroom::store
