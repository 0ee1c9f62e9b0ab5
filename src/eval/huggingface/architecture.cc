#include "architecture.h"

#include "headroom/config/attention_part.h"

namespace headroom::eval {

at::Tensor Link::in(const at::Tensor& tensor_of_file) const {
  at::Tensor place = view.empty() ? tensor_of_file : tensor_of_file.view(view);
  if (part) {
    place = place.select(part->first, part->second);
  }
  return order.empty() ? place : place.permute(order);
}

std::string common_obstacle(const config::ModelOptions& o) {
  const config::AttentionOptions &a = o.attention, plain;
  const config::ModelOptions usual;
  if (o.kind != config::ModelKind::language_model) {
    return "kind";
  }
  const std::pair<bool, const char*> all[] = {
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
      {a.qk_norm, "attention.qk_norm"}};
  for (const auto& [is_other, option] : all) {
    if (is_other) {
      return option;
    }
  }
  return {};
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

}  // namespace headroom::eval
