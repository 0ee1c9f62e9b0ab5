#include "supported.h"

#include "headroom/core/error.h"

namespace headroom::cost {

using namespace config;

void require_formula(const AttentionOptions& attention) {
  const auto refuse = [](const char* key, std::string_view value, const char* covered) {
    misuse("cost: {} = \"{}\" has no cost formula yet, only \"{}\" has", key, value, covered);
  };
  if (attention.score != Score::dot) {
    refuse("model.attention.score", name_of(attention.score), "dot");
  }
  if (attention.composition != Composition::none) {
    refuse("model.attention.composition", name_of(attention.composition), "none");
  }
  // No paper gives heads that are chosen token by token biases or u and v.
  if (attention.projection == Projection::routed_heads && (attention.bias || attention.position_bias)) {
    misuse("cost: model.attention.{} = true has no cost formula with projection = \"routed_heads\"",
           attention.bias ? "bias" : "position_bias");
  }
}

void require_formula(const ModelOptions& model) {
  if (model.kind != ModelKind::language_model) {
    misuse("cost: model.kind = \"{}\" has no cost formula yet, only \"language_model\" has", name_of(model.kind));
  }
  require_formula(model.attention);
}

}  // namespace headroom::cost
