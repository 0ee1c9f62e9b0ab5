#include "match.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cost.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"

namespace headroom::cost {

using namespace config;

namespace {

// Returns the largest low + i * step for which `fits` holds. `fits` must be monotone and hold for `low`.
template <class Fits>
std::int64_t largest(std::int64_t low, std::int64_t step, Fits fits) {
  std::int64_t stride = step;
  while (fits(low + stride)) {
    low += stride;
    stride *= 2;
  }
  for (; stride >= step; stride /= 2) {
    if (fits(low + stride)) {
      low += stride;
    }
  }
  return low;
}

void require_fit(std::int64_t count, std::int64_t target, const char* key, std::int64_t width, const char* what) {
  if (count > target) {
    user_error("cost: --match: {}: even {} gives {} {}, more than the target's {}", key, width, count, what, target);
  }
}

// Returns the attention options of every kind of layer.
std::vector<AttentionOptions> attentions_of(const ModelOptions& model) {
  return transformed(model.kinds_of_layers(std::max(model.n_layers, model.decoder_layers())),
                     [](const auto& entry) { return entry.first.attention; });
}

// Throws UserError if every entry of model.layers sets `key`: its value in the model's table then has no effect.
void require_inherited(const ModelOptions& model, LayerOptions::Keys LayerOptions::*table, std::string_view name,
                       std::string_view key) {
  if (!model.layers.empty() &&
      std::ranges::all_of(model.layers, [&](const LayerOptions& layer) { return (layer.*table).contains(key); })) {
    user_error(
        "cost: --match: model.layers: every entry sets {0}.{1}, which leaves no width to match; remove it from the "
        "entries "
        "that may take the matched model.{0}.{1}",
        name, key);
  }
}

template <class Count>
void widen_heads(ModelOptions& model, std::int64_t target, const char* what, Count count) {
  require_inherited(model, &LayerOptions::attention, "attention", "d_head");
  std::int64_t& d_head = model.attention.d_head;
  std::int64_t step = 1, least = 1;
  for (const AttentionOptions& attention : attentions_of(model)) {
    step = std::lcm(step, attention.projection->d_head_step());
    least = std::max(least, attention.projection->least_d_head(attention));
  }
  least = round_up(least, step);
  const auto fits = [&](std::int64_t width) {
    d_head = width;
    return count(model) <= target;
  };
  if (!fits(least)) {
    require_fit(count(model), target, "model.attention.d_head", least, what);
  }
  d_head = largest(least, step, fits);
  const auto suits = [&] {
    const std::vector<AttentionOptions> all = attentions_of(model);
    return std::ranges::all_of(all, [](const AttentionOptions& a) { return a.position->fits_width(a); });
  };
  while (!suits() && d_head > least) {
    d_head -= step;
  }
}

void match_parameters(ModelOptions& model, const ModelOptions& goal) {
  const std::int64_t target = count_parameters(goal);
  if (model.mlp.kind == goal.mlp.kind) {
    model.mlp.d_hidden = goal.mlp.d_hidden;
  }
  require_inherited(model, &LayerOptions::mlp, "mlp", "d_hidden");
  const auto layers = model.kinds_of_layers(std::max(model.n_layers, model.decoder_layers()));
  const bool experts =
      std::ranges::any_of(layers, [](const auto& kind) { return kind.first.mlp.kind == MlpKind::experts; });
  const std::int64_t step = experts ? 4 : 1;
  const auto fits = [&model, target](std::int64_t d_hidden) {
    ModelOptions wider = model;
    wider.mlp.d_hidden = d_hidden;
    return count_parameters(wider) <= target;
  };
  const std::vector<AttentionOptions> all = attentions_of(model);
  if (std::ranges::none_of(
          all, [](const AttentionOptions& a) { return a.composition->keeps_width() || a.score->keeps_width(); })) {
    widen_heads(model, target, "parameters", count_parameters);
  } else if (!fits(model.mlp.d_hidden)) {
    model.mlp.d_hidden = step;
    require_fit(count_parameters(model), target, "model.mlp.d_hidden", step, "parameters");
  }
  model.mlp.d_hidden = largest(model.mlp.d_hidden, step, fits);
}

std::int64_t attention_macs(const ModelOptions& model) {
  return paper_cost(model).attention_macs;
}

void match_macs(ModelOptions& model, const ModelOptions& goal) {
  AttentionOptions& attention = model.attention;
  const std::int64_t target = attention_macs(goal);
  // MACs are roughly proportional to n_heads x d_head, so each grows by the square root.
  const double factor = std::sqrt(static_cast<double>(target) / static_cast<double>(attention_macs(model)));
  const std::int64_t unit = std::max<std::int64_t>(attention.n_kv_heads, 1);  // heads per group must stay whole
  const std::int64_t groups = std::llround(static_cast<double>(attention.n_heads) * factor / static_cast<double>(unit));
  attention.projection->set_heads(attention, std::max(attention.n_heads, groups * unit));
  widen_heads(model, target, "attention MACs", attention_macs);
}

Candidate describe_candidate(const ModelOptions& model) {
  const AttentionOptions& attention = model.attention;
  return {.n_heads = attention.n_heads,
          .n_experts = attention.of<config::RoutingOptions>().n_experts,
          .top_k = attention.of<config::RoutingOptions>().top_k,
          .d_head = attention.d_head,
          .d_hidden = model.mlp.d_hidden,
          .parameters = count_parameters(model),
          .attention_macs = attention_macs(model)};
}

std::vector<Candidate> candidates(const ModelOptions& given, const ModelOptions& goal) {
  std::vector<Candidate> list;
  for (const AttentionOptions& trial : given.attention.projection->trials(given.attention, goal.attention.n_heads)) {
    ModelOptions model = given;
    model.attention = trial;
    match_parameters(model, goal);
    list.push_back(describe_candidate(model));
  }
  return list;
}

}  // namespace

MatchResult match(const Config& config, const Config& target, MatchBy by) {
  if (config.model.kind != target.model.kind) {
    user_error("cost: --match: model.kind: is {}, but the target's is {}; only models of one kind can be matched",
               name_of(config.model.kind), name_of(target.model.kind));
  }
  for (const auto& [key, exists] : {std::pair("attention.n_heads", config.model.attention.has_heads()),
                                    std::pair("mlp.kind", config.model.mlp.kind != MlpKind::none)}) {
    if (!exists) {
      user_error("cost: --match: model.{}: is {}, which leaves no width to match", key, key[0] == 'm' ? "none" : "0");
    }
  }
  MatchResult result{.config = config, .by = by, .candidates = {}};
  ModelOptions& model = result.config.model;
  if (by == MatchBy::parameters) {
    match_parameters(model, target.model);
    result.candidates = candidates(config.model, target.model);
  } else {
    match_macs(model, target.model);
  }
  check(result.config, "cost: --match");
  result.parameters = count_parameters(model);
  result.target_parameters = count_parameters(target.model);
  result.attention_macs = attention_macs(model);
  result.target_attention_macs = attention_macs(target.model);
  return result;
}

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
