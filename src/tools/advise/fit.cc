#include "fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "headroom/config/attention/projection_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "training/cost/cost.h"

namespace headroom::advise {
namespace {

constexpr std::int64_t kLeastWidth = 32;        // minimum d_model of models scaled down from the config
constexpr std::int64_t kLeastVocabulary = 500;  // covers all bytes and common letters
constexpr double kBytesPerToken = 200.0;        // minimum text per token of the vocabulary

std::int64_t rounded_to(double width, std::int64_t step) {
  return std::max(step, step * std::lround(width / static_cast<double>(step)));
}

void widen(std::int64_t& width, double factor) {
  if (width > 0) {  // 0: derived from other keys
    width = rounded_to(static_cast<double>(width) * factor, 4);
  }
}

bool is_valid(const config::Config& config) {
  try {
    config::check(config, "advise");
    return forward_macs(config) > 0.0;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

double forward_macs(const config::Config& config) {
  const cost::ExecutedCost cost = cost::executed_cost(config.model, 1);
  return static_cast<double>(cost.attention_macs + cost.mlp_macs + cost.head_macs) /
         static_cast<double>(config.model.context_length);
}

std::optional<config::Config> scaled(const config::Config& config, double factor) {
  config::Config other = config;
  config::ModelOptions& model = other.model;
  if (factor != 1.0) {
    model.d_model = rounded_to(static_cast<double>(model.d_model) * factor, 8);
    model.mlp.d_hidden = rounded_to(static_cast<double>(model.mlp.d_hidden) * factor, 8);
    widen(model.attention.d_head, factor);
    const double layers = static_cast<double>(model.n_layers) * std::sqrt(factor);
    model.n_layers = std::max<std::int64_t>(1, std::lround(layers));
    if (factor < 1.0 && model.d_model < kLeastWidth) {
      return std::nullopt;
    }
  }
  if (!model.attention.projection->has_latent()) {
    return is_valid(other) ? std::optional(other) : std::nullopt;
  }
  config::Config latents = other;  // also scales the widths of latents
  auto& latent = latents.model.attention.of<config::LatentOptions>();
  widen(latent.kv_rank, factor);
  widen(latent.q_rank, factor);
  widen(latent.d_rotary, factor);
  widen(latent.d_value, factor);
  return is_valid(latents) ? std::optional(latents) : is_valid(other) ? std::optional(other) : std::nullopt;
}

const std::vector<double>& size_factors() {
  static const std::vector<double> kFactors = {0.25, 0.375, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0};
  return kFactors;
}

double effective_tokens(double tokens, double text_tokens) {
  const double again = std::max(0.0, tokens / text_tokens - 1.0);
  return std::min(tokens, text_tokens) + text_tokens * kEpochDecay * (1.0 - std::exp(-again / kEpochDecay));
}

std::size_t best_size(const std::vector<double>& forward, double macs, double text_tokens) {
  constexpr double kExponent = -0.35;
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < forward.size(); ++i) {
    const double tokens = macs / (3.0 * forward[i]);
    const double loss = std::pow(forward[i], kExponent) +
                        std::pow(effective_tokens(tokens, text_tokens) / kTokensPerParameter, kExponent);
    if (loss < least) {
      best = i;
      least = loss;
    }
  }
  return best;
}

std::size_t best_batch(const std::vector<double>& tokens_per_second) {
  const double fastest = *std::ranges::max_element(tokens_per_second);
  const auto first =
      std::ranges::find_if(tokens_per_second, [&](double rate) { return rate >= (1.0 - kLostToBatch) * fastest; });
  return static_cast<std::size_t>(first - tokens_per_second.begin());
}

std::vector<std::int64_t> vocabulary_sizes(std::int64_t own, double text_bytes) {
  constexpr std::size_t kSizes = 4;
  const double most = std::min(2.0 * static_cast<double>(own), text_bytes / kBytesPerToken);
  std::vector<std::int64_t> sizes;
  std::int64_t size = own;
  for (; static_cast<double>(size) > most && size >= 2 * kLeastVocabulary; size /= 2) {
  }
  if (static_cast<double>(size) > most) {
    return sizes;
  }
  if (2.0 * static_cast<double>(size) <= most) {
    size *= 2;
  }
  for (; sizes.size() < kSizes && size >= std::min(kLeastVocabulary, own); size /= 2) {
    sizes.insert(sizes.begin(), size);
  }
  return sizes;
}

std::int64_t rounded_down(double number) {
  const double unit = number < 100.0 ? 1.0 : std::pow(10.0, std::floor(std::log10(number)) - 1.0);
  return static_cast<std::int64_t>(std::floor(number / unit) * unit);
}

}  // namespace headroom::advise
