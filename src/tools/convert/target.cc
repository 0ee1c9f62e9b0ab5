#include "layer_conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"

namespace headroom::convert {
namespace {

void require_equal(const ConvertRequest& request, std::string_view key, const auto& is, const auto& wanted) {
  if (is != wanted) {
    user_error("convert: {}: {} is {}, but {} has {}; only the attention and, with experts, the MLP may differ",
               request.to, key, is, request.source, wanted);
  }
}

// The result has the source's tokenizer, so a target with another tokenizer was meant for other parameters.
void require_same_tokenizer(const ConvertRequest& request, const config::Config& source) {
  const auto is = config::flatten(request.target), wanted = config::flatten(source);
  for (std::size_t i = 0; i < is.size(); ++i) {
    const std::string& key = is[i].first;
    if ((key == "tokenizer.kind" || key == "tokenizer.vocabulary_size") && request.target.given.contains(key) &&
        is[i].second != wanted[i].second) {
      user_error(
          "convert: {}: {} is {}, but {} has {}; the result keeps the source's tokenizer, so leave the key out or set "
          "it to this",
          request.to, key, is[i].second, request.source, wanted[i].second);
    }
  }
}

// The experts consist of the source's hidden units.
config::MlpOptions expert_options(const ConvertRequest& request, const config::MlpOptions& from,
                                  config::MlpOptions to) {
  const config::ExpertKind kind =
      from.kind == config::MlpKind::gated ? config::ExpertKind::gated : config::ExpertKind::dense;
  if (to.expert_kind != kind) {
    user_error("convert: {}: model.mlp.expert_kind is {}, but the MLP of {} is {}; set it to {}", request.to,
               config::name_of(to.expert_kind), request.source, config::name_of(from.kind), config::name_of(kind));
  }
  if (to.n_experts * to.d_hidden != from.d_hidden) {
    user_error(
        "convert: {}: model.mlp.n_experts times model.mlp.d_hidden is {} times {}, but the MLP of {} has {} hidden "
        "units; the product must be their number",
        request.to, to.n_experts, to.d_hidden, request.source, from.d_hidden);
  }
  if (to.d_shared > 0) {
    user_error("convert: {}: model.mlp.d_shared is {}, but all hidden units of {} become experts; set it to 0",
               request.to, to.d_shared, request.source);
  }
  if (from.hidden_groups > 0) {
    user_error("convert: {}: model.mlp.hidden_groups is {}; experts need an MLP without gated groups", request.source,
               from.hidden_groups);
  }
  to.activation = from.activation;
  if (from.bias && to.expert_bias != config::ExpertBias::all) {
    to.expert_bias = config::ExpertBias::hidden;
  }
  return to;
}

// Returns the target's attention options, with the source's settings on which kept weights rely.
config::AttentionOptions attention_options(const config::AttentionOptions& kept, const config::AttentionOptions& to) {
  config::AttentionOptions a = to;
  auto& position = a.of<config::PositionOptions>();
  const auto& kept_position = kept.of<config::PositionOptions>();
  a.bias = kept.bias;
  if (a.projection == kept.projection) {
    a.of<config::DenseOptions>() = kept.of<config::DenseOptions>();
  }
  position.position_bias = kept_position.position_bias;
  position.rope_base = kept_position.rope_base;
  static_cast<config::RopeScalingOptions&>(position) = kept_position;
  position.forget = kept_position.forget;
  a.qk_norm = kept.qk_norm || a.qk_norm;
  if (kept.qk_norm) {
    a.qk_norm_epsilon = kept.qk_norm_epsilon;
  }
  if (a.score == kept.score) {
    a.scale = kept.scale;
    a.of<config::DotOptions>().scale_width = kept.of<config::DotOptions>().scale_width;
  }
  a.window = kept.window;
  a.window_pattern = kept.window_pattern;
  a.dropout = kept.dropout;
  if (a.position == "rope" && a.projection == "latent") {
    // The rotated channels get the source's highest frequencies.
    const auto channels = static_cast<double>(kept.projection->rotary_channels(kept));
    position.rope_base =
        std::pow(kept_position.rope_base, static_cast<double>(a.projection->rotary_channels(a)) / channels);
  } else if (a.position == "rope" && a.d_head == kept.d_head && a.projection == kept.projection) {
    position.rope_fraction = kept_position.rope_fraction;
  } else if (a.position == "rope" && a.projection->has_head_matrices()) {
    position.rope_fraction =
        std::min(1.0, static_cast<double>(kept.projection->rotary_channels(kept)) / static_cast<double>(a.d_head));
  }
  return a;
}

// Throws UserError unless the source's key and value heads can be averaged or repeated to the target's number.
void check_key_heads(const ConvertRequest& request, const config::AttentionOptions& from,
                     const config::AttentionOptions& to) {
  if (from.n_heads == 0 && to.n_heads > 0) {
    user_error("convert: {}: model.attention.n_heads is {}, but {} has a layer without attention there", request.to,
               to.n_heads, request.source);
  }
  if (to.n_heads == 0 || !to.projection->has_head_matrices() || !to.projection->has_fixed_heads()) {
    return;
  }
  if (to.computed_heads() > from.n_heads) {
    user_error("convert: {}: model.attention has {} heads, but {} has {}; heads can be kept or made fewer, not more",
               request.to, to.computed_heads(), request.source, from.n_heads);
  }
  if (to.d_head != from.d_head && to.d_head > request.target.model.d_model) {
    user_error("convert: {}: model.attention.d_head is {}; it must be at most model.d_model={}", request.to, to.d_head,
               request.target.model.d_model);
  }
  const std::int64_t before = from.kv_heads(), after = to.kv_heads();
  const bool same_heads = to.computed_heads() == from.n_heads && to.d_head == from.d_head &&
                          std::ranges::none_of(std::string_view("qkvo"), [&](char c) { return to.has_experts(c); });
  if (same_heads && before % after != 0 && after % before != 0) {
    user_error("convert: {}: model.attention.n_kv_heads is {}, which must be a divisor or a multiple of the {} of {}",
               request.to, after, before, request.source);
  }
  if (!same_heads && after != to.computed_heads()) {
    user_error(
        "convert: {}: model.attention.n_kv_heads is {}; heads of another number or width, and experts, need one key "
        "and value head each: set it to 0",
        request.to, after);
  }
}

// Returns the source's layer with the target's attention, and with the target's MLP if splits_mlp().
config::ModelOptions converted_layer(const ConvertRequest& request, const config::ModelOptions& from,
                                     const config::ModelOptions& to, std::vector<std::string>& notes) {
  require_equal(request, "model.attention.position", to.attention.position.name(), from.attention.position.name());
  const bool splits = splits_mlp(from.mlp, to.mlp);
  if (to.mlp.kind != from.mlp.kind && !splits) {
    user_error("convert: {}: model.mlp.kind is {}, but {} has {}; an MLP stays as it is or becomes experts", request.to,
               config::name_of(to.mlp.kind), request.source, config::name_of(from.mlp.kind));
  }
  config::ModelOptions result = from;
  result.attention = attention_options(from.attention, to.attention);
  if (splits) {
    result.mlp = expert_options(request, from.mlp, to.mlp);
  }
  const auto note = [&](const char* table, const auto& is, const auto& wanted) {
    const config::LayerOptions::Keys before = config::differing_keys(wanted, is);
    for (const auto& [key, value] : config::differing_keys(is, wanted)) {
      std::string text = fmt::format("model.{}.{} is {}, as the kept weights need it, instead of {}", table, key, value,
                                     before.at(key));
      if (std::ranges::find(notes, text) == notes.end()) {
        notes.push_back(std::move(text));
      }
    }
  };
  note("attention", result.attention, to.attention);
  if (splits) {
    note("mlp", result.mlp, to.mlp);
  }
  if (from.attention.position == "alibi" && result.attention.computed_heads() != from.attention.n_heads) {
    notes.push_back(fmt::format("the biases of alibi are those of {} heads instead of the kept heads' own",
                                result.attention.computed_heads()));
  }
  if (changes_attention(from, result)) {
    if (to.attention.composition->maps_per_head(to.attention) > 1) {
      user_error(
          "convert: {}: model.attention.composition is {}, whose heads have several attention matrices; the heads of a "
          "dense model have one, so train this model from scratch",
          request.to, to.attention.composition.name());
    }
    check_key_heads(request, from.attention, result.attention);
  }
  return result;
}

}  // namespace

void check_source(const ConvertRequest& request, const config::ModelOptions& model) {
  if (model.kind != config::ModelKind::language_model && model.kind != config::ModelKind::masked_language_model) {
    user_error("convert: {}: model.kind is {}; expected a language_model or masked_language_model", request.source,
               config::name_of(model.kind));
  }
  for (const auto& [name, options] : {std::pair(&request.source, &model), {&request.to, &request.target.model}}) {
    if (options->n_groups != 0) {
      user_error("convert: {}: model.n_groups is {}; expected 0, layers with their own parameters", *name,
                 options->n_groups);
    }
  }
  if (model.norm_position == config::NormPosition::peri) {
    user_error("convert: {}: model.norm_position is peri; expected pre or post", request.source);
  }
}

bool splits_mlp(const config::MlpOptions& from, const config::MlpOptions& to) {
  return to.kind == config::MlpKind::experts && from.kind != config::MlpKind::experts &&
         from.kind != config::MlpKind::none;
}

bool changes_attention(const config::ModelOptions& from, const config::ModelOptions& to) {
  const std::vector<std::string> keys = config::differing_keys(from, to);
  return std::ranges::any_of(keys, [](const std::string& key) {
    return key.starts_with("model.attention.") && key != "model.attention.window_pattern";
  });
}

bool wants(const ConvertRequest& request, std::int64_t layer) {
  return request.layers.empty() || std::ranges::find(request.layers, layer) != request.layers.end();
}

config::Config with_layers(config::Config config, const std::vector<config::ModelOptions>& layers) {
  config::ModelOptions& model = config.model;
  std::vector<config::LayerOptions> entries;
  bool same = true;
  const auto add_entries = [&](const auto& base_of) {
    entries.clear();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const config::ModelOptions base = base_of(static_cast<std::int64_t>(i));
      const config::LayerOptions entry{.attention = config::differing_keys(layers[i].attention, base.attention),
                                       .mlp = config::differing_keys(layers[i].mlp, base.mlp)};
      same = same && entry.attention.empty() && entry.mlp.empty();
      if (!entries.empty() && entries.back().attention == entry.attention && entries.back().mlp == entry.mlp) {
        ++entries.back().repeat;
      } else {
        entries.push_back(entry);
      }
    }
  };
  model.layers.clear();
  add_entries([&](std::int64_t layer) { return model.of_layer(layer); });
  if (!same) {
    model.attention.window_pattern = config::AttentionOptions().window_pattern;
    add_entries([&](std::int64_t) { return model; });
    config::LayerOptions common{.repeat = 1, .attention = entries[0].attention, .mlp = entries[0].mlp};
    for (const config::LayerOptions& entry : entries) {
      const auto differs_in = [](const config::LayerOptions::Keys& keys) {
        return [&keys](const auto& key) { return !keys.contains(key.first) || keys.at(key.first) != key.second; };
      };
      std::erase_if(common.attention, differs_in(entry.attention));
      std::erase_if(common.mlp, differs_in(entry.mlp));
    }
    model.layers = {common};
    model = model.of_layer(0);
    add_entries([&](std::int64_t) { return model; });
    model.layers = entries.size() > 1 ? std::move(entries) : std::vector<config::LayerOptions>();
  }
  return config;
}

namespace {

// Throws UserError if a layer changes keys and values that it shares with other layers of the source.
void check_shared(const ConvertRequest& request, const config::ModelOptions& from, const config::ModelOptions& to) {
  const std::vector<std::int64_t> before = from.key_owners(from.n_layers), after = to.key_owners(from.n_layers);
  for (std::int64_t layer = 0; layer < from.n_layers; ++layer) {
    const std::vector<std::int64_t> group = sharing(before, layer);
    if (group.size() > 1 &&
        (changes_attention(from.of_layer(layer), to.of_layer(layer)) || sharing(after, layer) != group)) {
      user_error(
          "convert: {}: layer {} shares keys and values with others; layers that share them already must stay as "
          "they are",
          request.source, layer);
    }
  }
}

}  // namespace

config::Config result_config(const ConvertRequest& request, const config::Config& source,
                             std::vector<std::string>& notes) {
  const config::ModelOptions &from = source.model, &to = request.target.model;
  require_equal(request, "model.kind", config::name_of(to.kind), config::name_of(from.kind));
  require_equal(request, "model.d_model", to.d_model, from.d_model);
  require_equal(request, "model.n_layers", to.n_layers, from.n_layers);
  require_same_tokenizer(request, source);
  std::vector<config::ModelOptions> layers;
  bool all = true, changed = false;
  for (std::int64_t layer = 0; layer < from.n_layers; ++layer) {
    config::ModelOptions own = from.of_layer(layer);
    if (wants(request, layer)) {
      ConvertRequest named = request;
      if (!from.layers.empty() || !to.layers.empty()) {
        named.to += fmt::format(": layer {}", layer);
      }
      config::ModelOptions result = converted_layer(named, own, to.of_layer(layer), notes);
      changed = changed || changes_attention(own, result) || splits_mlp(own.mlp, result.mlp);
      own = std::move(result);
    }
    all = all && wants(request, layer);
    layers.push_back(std::move(own));
  }
  if (!changed) {
    return source;
  }
  config::Config result = source;
  if (all) {  // the layers that the target names refer to these settings
    result.model.attention = attention_options(from.attention, to.attention);
    result.model.mlp = splits_mlp(from.mlp, to.mlp) ? layers.front().mlp : from.mlp;
  }
  result = with_layers(std::move(result), layers);
  config::check(result, request.to);
  check_shared(request, from, result.model);
  return result;
}

}  // namespace headroom::convert
