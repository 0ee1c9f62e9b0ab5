#include "scale.h"

#include <algorithm>
#include <cmath>

#include "cost.h"
#include "headroom/config/attention/projection_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::cost {
namespace {

// Multiplies a width; 0 means that it is derived from other keys.
void widen(std::int64_t& width, double factor, std::int64_t multiple) {
  if (width > 0) {
    const double steps = static_cast<double>(width) * factor / static_cast<double>(multiple);
    width = std::max<std::int64_t>(1, std::lround(steps)) * multiple;
  }
}

bool is_valid(const config::Config& config) {
  try {
    config::check(config, "cost");
    return training_macs_per_token(config) > 0.0;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

double training_macs_per_token(const config::Config& config) {
  const std::int64_t batch = config.whole_sequences();
  return static_cast<double>(executed_cost(config.model, batch).step_macs) /
         static_cast<double>(batch * config.model.context_length);
}

std::optional<config::Config> scaled(const config::Config& config, double factor) {
  config::Config other = config;
  config::ModelOptions& model = other.model;
  if (factor != 1.0) {
    widen(model.d_model, factor, 8);
    widen(model.mlp.d_hidden, factor, 8);
    widen(model.attention.d_head, factor, 4);
    model.n_layers = std::max<std::int64_t>(1, std::lround(static_cast<double>(model.n_layers) * std::sqrt(factor)));
    if (model.attention.projection->has_latent()) {
      auto& latent = model.attention.of<config::LatentOptions>();
      for (std::int64_t* width : {&latent.kv_rank, &latent.q_rank, &latent.d_rotary, &latent.d_value}) {
        widen(*width, factor, 4);
      }
    }
  }
  return is_valid(other) ? std::optional(other) : std::nullopt;
}

std::optional<config::Config> largest_within(const config::Config& config, double macs) {
  constexpr double kStep = 1.0218971486541166;  // 2^(1/32)
  std::optional<config::Config> largest;
  bool exceeded = false;
  for (double factor = kSmallestFactor; factor <= kLargestFactor * kStep; factor *= kStep) {
    const std::optional<config::Config> size = scaled(config, std::abs(factor - 1.0) < 1e-6 ? 1.0 : factor);
    if (!size) {
      continue;
    }
    const double tokens = static_cast<double>(kTokensPerParameter * count_parameters(size->model));
    exceeded = tokens * training_macs_per_token(*size) > macs;
    if (exceeded) {
      break;
    }
    largest = size;
  }
  return exceeded ? largest : std::nullopt;
}

}  // namespace headroom::cost
