#include "layers.h"

#include <fmt/format.h>

#include "headroom/config/attention_part.h"

namespace headroom::inspect {

std::string layer_of(std::string_view value) {
  return std::string(value.substr(0, value.rfind('.')));
}

std::string refuse_without_scores(const config::ModelOptions& options) {
  const config::AttentionOptions& o = options.attention;
  return o.score->has_scores()
             ? ""
             : fmt::format("attention with score \"{}\" has no weights of each query and key", o.score.name());
}

}  // namespace headroom::inspect
