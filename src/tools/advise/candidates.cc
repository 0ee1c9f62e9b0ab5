#include "fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "foundation/core/transformed.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "training/cost/match.h"

namespace headroom::advise {

namespace {

Candidate candidate_of(std::string name, config::Config config) {
  return {.name = std::move(name), .config = std::move(config)};
}

bool has_bank(const config::AttentionOptions& attention) {
  return attention.projection->is_bank(attention, 'v') || attention.projection->is_bank(attention, 'o');
}

bool keeps_width(const config::AttentionOptions& attention) {
  return attention.composition->keeps_width() || attention.score->keeps_width();
}

// A variant's config, and for zoo recipes the number of heads of the zoo's dense model.
struct Origin {
  config::Config config;
  double dense_heads = 0.0;  // 0: not a zoo recipe
};

Origin origin_of(const std::string& variant) {
  const std::vector<std::string> recipes = config::recipe_names();
  const std::string zoo = "zoo/" + variant;
  if (std::ranges::find(recipes, zoo) == recipes.end()) {
    return {.config = config::load_config(variant)};
  }
  return {.config = config::load_config(zoo),
          .dense_heads = static_cast<double>(config::load_config("zoo/dense").model.attention.n_heads)};
}

// Returns the config with the variant's attention. Keeps the config's windows, and its positions unless `positions` is
// set.
config::Config with_attention(const config::Config& config, const Origin& origin, bool positions) {
  const config::AttentionOptions& own = config.model.attention;
  config::Config other = config;
  config::AttentionOptions& attention = other.model.attention;
  attention = origin.config.model.attention;
  if (origin.dense_heads > 0.0 && !has_bank(own)) {
    const double share = static_cast<double>(own.n_heads) / origin.dense_heads;
    const double heads = static_cast<double>(attention.n_heads) * share;
    attention.projection->set_heads(attention, std::max<std::int64_t>(1, std::lround(heads)));
  }
  if (keeps_width(attention) && !has_bank(own)) {
    attention.d_head = own.d_head;
  }
  attention.bias = own.bias;
  attention.scale = own.scale;
  attention.qk_norm = own.qk_norm;
  attention.dropout = own.dropout;
  attention.window = own.window;
  attention.window_pattern = own.window_pattern;
  if (!positions) {
    attention.position = own.position;
    attention.of<config::PositionOptions>() = own.of<config::PositionOptions>();
  }
  const config::MlpOptions& mlp = origin.config.model.mlp;
  if (mlp.kind == config::MlpKind::experts && config.model.mlp.kind != mlp.kind) {
    other.model.mlp.kind = mlp.kind;
    other.model.mlp.n_experts = mlp.n_experts;
    other.model.mlp.top_k = mlp.top_k;
    const std::int64_t experts = std::max<std::int64_t>(4, 4 * (config.model.mlp.d_hidden / (4 * mlp.n_experts)));
    other.model.mlp.d_hidden = experts;
  }
  return other;
}

config::Config matched(const config::Config& config, const config::Config& target) {
  return cost::match(config, target, cost::MatchBy::parameters).config;
}

config::Config variant_of(const config::Config& config, const std::string& variant) {
  const Origin origin = origin_of(variant);
  std::string why;
  for (const bool positions : {false, true}) {
    try {
      return matched(with_attention(config, origin, positions), config);
    } catch (const UserError& error) {
      why = error.what();
    }
  }
  user_error("advise: --variants: {}: cannot be matched to the config's number of parameters: {}", variant, why);
}

bool same_model(const config::Config& one, const config::Config& other) {
  return config::to_toml(one) == config::to_toml(other);
}

std::string name_of(const std::string& variant) {
  return std::filesystem::path(variant).stem().string();
}

}  // namespace

std::vector<Candidate> learning_rate_candidates(const config::Config& config) {
  std::vector<Candidate> candidates;
  for (const double factor : {0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0}) {
    config::Config other = config;
    other.train.learning_rate *= factor;
    candidates.push_back(candidate_of(fmt::format("{}", other.train.learning_rate), other));
  }
  return candidates;
}

config::Config with_vocabulary(config::Config config, std::int64_t size) {
  config.tokenizer.vocabulary_size = size;
  config.model.vocabulary_size = size;
  return config;
}

std::vector<Candidate> vocabulary_candidates(const config::Config& config, const std::vector<std::int64_t>& sizes) {
  std::vector<Candidate> candidates = transformed(sizes, [&](const std::int64_t size) {
    return candidate_of(fmt::format("{}", size), with_vocabulary(config, size));
  });
  return candidates;
}

std::vector<Candidate> variant_candidates(const config::Config& config, const std::vector<std::string>& variants) {
  std::vector<std::pair<std::string, config::Config>> models = {{"own", config}};
  for (const std::string& variant : variants) {
    config::Config other = variant_of(config, variant);
    const auto same = std::ranges::find_if(models, [&](const auto& model) { return same_model(model.second, other); });
    if (same != models.end() && same->first != "own") {
      continue;
    }
    const std::string name = name_of(variant);
    const auto named = std::ranges::find_if(models, [&](const auto& model) { return model.first == name; });
    if (named != models.end() && named != same) {
      user_error("advise: --variants: two variants are named {}; give them different file names", name);
    }
    if (same == models.end()) {
      models.emplace_back(name, std::move(other));
    } else {
      same->first = name;
    }
  }
  std::vector<Candidate> candidates;
  for (const auto& [name, model] : models) {
    for (const double factor : {0.5, 1.0, 2.0}) {
      config::Config other = model;
      other.train.learning_rate *= factor;
      candidates.push_back(candidate_of(fmt::format("{}, {}", name, other.train.learning_rate), other));
    }
  }
  return models.size() < 2 ? std::vector<Candidate>() : candidates;
}

std::vector<Candidate> head_candidates(const config::Config& config) {
  const config::AttentionOptions& own = config.model.attention;
  std::vector<config::AttentionOptions> others;
  if (has_bank(own)) {
    others = own.projection->trials(own, own.n_heads * own.of<config::RoutingOptions>().n_experts);
  } else {
    for (const double factor : {0.5, 0.25, 2.0}) {
      const double heads = static_cast<double>(own.n_heads) * factor;
      if (heads >= 1.0 && heads == std::floor(heads)) {
        config::AttentionOptions other = own;
        other.n_kv_heads = 0;
        other.projection->set_heads(other, std::lround(heads));
        others.push_back(other);
      }
    }
  }
  std::vector<Candidate> candidates = {candidate_of(own.projection->heads_text(own), config)};
  for (const config::AttentionOptions& attention : others) {
    config::Config other = config;
    other.model.attention = attention;
    std::string name = attention.projection->heads_text(attention);
    const bool known =
        std::ranges::any_of(candidates, [&](const Candidate& candidate) { return candidate.name == name; });
    try {
      if (!known) {
        candidates.push_back(candidate_of(std::move(name), matched(other, config)));
      }
    } catch (const UserError&) {  // cannot be matched to this size
    }
  }
  return candidates;
}

}  // namespace headroom::advise
