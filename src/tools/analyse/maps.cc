// Attention maps of the start of the text (SwitchHead, appendix, Figures 2-6): each head, with the weights of output
// experts on the left and of value experts below, the maximum over heads, and the heads with vertical stripes. Models
// with relative positions also show the content and position terms of the scores.
#include <algorithm>
#include <optional>

#include "analyse.h"
#include "foundation/core/text/format.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "measures.h"
#include "model_runner.h"

namespace headroom::analyse {

Stripes vertical_stripes(const at::Tensor& weights, std::int64_t window) {
  const std::int64_t t = weights.size(1), s = weights.size(2), before = s - t;
  const bool causal = !weights.triu(before + 1).any().item<bool>();
  // The number of queries after each key; all queries if they see the keys that follow.
  const at::Tensor later = causal ? (s - 1 - at::arange(s, at::kLong)).clamp_max(t) : at::full({s}, t, at::kLong);
  const at::Tensor too_few = later.lt(std::max<std::int64_t>(t / 4, 1));
  const auto mean_over_later = [&](const at::Tensor& w) {
    return ((causal ? w.tril(before - 1) : w).sum(-2) / later.clamp_min(1)).masked_fill(too_few, 0.0).slice(-1, 1);
  };
  const at::Tensor all = at::ones({t, s}), before_end = causal ? all.tril(before) : all;
  const at::Tensor visible = window > 0 ? before_end.triu(before - window + 1) : before_end;
  const at::Tensor mean = mean_over_later(weights), chance = mean_over_later(visible / visible.sum(-1, true));
  const at::Tensor key = (mean - chance).argmax(-1);
  return {
      .key = key + 1, .weight = mean.gather(1, key.unsqueeze(1)).squeeze(1), .by_chance = chance.index_select(0, key)};
}

namespace {

constexpr double kLargeMap = 480.0, kSmallMap = 240.0;
// Names of more rows would make the cells of a small map higher than wide.
constexpr std::int64_t kMostNamesOfSmallMap = 12;
constexpr std::size_t kStripedHeads = 4;  // heads shown

class MapsAnalysis : public Analysis {
 public:
  explicit MapsAnalysis(const ModelRunner& runner) : options_(runner.options()) {}

  std::int64_t samples() const override { return 1; }
  bool wants(std::string_view name, const InputBatch& /*input*/) const override {
    const std::string_view value = value_of(name);
    return value == weights_value(options_.attention) ||
           (name.find(".select") != std::string_view::npos && name.find(".ffn.") == std::string_view::npos &&
            (value == "index" || value == "weight"));
  }
  void observe_value(std::string_view name, const at::Tensor& value, const InputBatch& /*input*/) override {
    const std::string_view what = value_of(name);
    if (what == weights_value(options_.attention)) {
      maps_[layer_of(name)] = attention_matrices(value[0].to(at::kCPU, at::kFloat), options_.attention);
    } else {
      RoutedExperts& routing = routings_[layer_of(name)];
      (what == "index" ? routing.index : routing.weight) = value.to(at::kCPU);
    }
  }
  void end_pass(const InputBatch& input) override { input_ = input; }

  Findings finish(const ModelRunner& runner) override {
    Findings found;
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const auto map = maps_.find(layer.name);
      if (map == maps_.end()) {
        continue;
      }
      const at::Tensor& weights = map->second;  // [H, T, S]
      found.tensors[layer.name] = weights;
      found.metrics[layer.name] = metrics_of(weights, layer);
      found.figures.push_back(draw_maps(runner, layer, weights, found));
    }
    if (std::optional<Figure> stripes = draw_stripes(runner, found)) {
      found.figures.insert(found.figures.begin(), std::move(*stripes));
    }
    const bool has_position_term = options_.attention.score->has_scores() && options_.attention.position->has_offsets();
    if (has_position_term && input_.tokens.defined()) {
      add_score_terms(runner, found);
    }
    const at::Tensor& text = runner.options().paired ? input_.target : input_.tokens;
    found.summary = fmt::format("attention maps of {} over {}", counted(std::ssize(maps_), "layer"),
                                counted(text.size(1), "token"));
    return found;
  }

 private:
  // Returns, per head, the entropy of the weights, and the mean weight on the first token, on the query's own token and
  // on the previous token.
  static Json metrics_of(const at::Tensor& weights, const AttentionLayer& layer) {
    Json metrics = Json::object();
    const at::Tensor entropy = at::special_entr(weights).sum(-1).mean(-1);
    metrics["entropy"] = to_vector(entropy);
    metrics["first_token"] = to_vector(weights.select(2, 0).mean(-1));
    const std::int64_t t = weights.size(1), s = weights.size(2);
    if (!layer.cross && s >= t) {
      metrics["own_token"] = to_vector(weights.diagonal(s - t, 1, 2).mean(-1));
      if (t > 1) {
        metrics["previous_token"] = to_vector(weights.narrow(1, 1, t - 1).diagonal(s - t, 1, 2).mean(-1));
      }
    }
    return metrics;
  }

  // Draws the heads whose stripe exceeds chance most (SwitchHead, Figure 6c and d). Adds all stripes to the metrics.
  std::optional<Figure> draw_stripes(const ModelRunner& runner, Findings& found) const {
    struct HeadStripe {
      const AttentionLayer* layer;
      std::int64_t head, key;
      double weight, by_chance;
      double excess() const { return weight - by_chance; }
    };
    std::vector<HeadStripe> heads;
    const std::vector<AttentionLayer> layers = runner.attention_layers();
    for (const AttentionLayer& layer : layers) {
      const auto map = maps_.find(layer.name);
      if (map == maps_.end() || map->second.size(2) < 2) {
        continue;
      }
      const std::int64_t window = layer.cross ? 0 : runner.model().options().of_layer(layer.layer).attention.window;
      const Stripes all = vertical_stripes(map->second, window);
      for (std::int64_t h = 0; h < all.key.size(0); ++h) {
        const HeadStripe& one = heads.emplace_back(HeadStripe{
            &layer, h, all.key[h].item<std::int64_t>(), all.weight[h].item<double>(), all.by_chance[h].item<double>()});
        found.metrics[layer.name]["stripe"].push_back(
            {{"key", one.key}, {"weight", one.weight}, {"by_chance", one.by_chance}});
      }
    }
    if (heads.empty()) {
      return std::nullopt;
    }
    std::ranges::stable_sort(heads, [](const auto& a, const auto& b) { return a.excess() > b.excess(); });
    heads.resize(std::min(heads.size(), kStripedHeads));
    Json shown = Json::array();
    for (const HeadStripe& one : heads) {
      const std::vector<std::string> keys =
          names(runner, *one.layer, /*queries=*/false, maps_.at(one.layer->name).size(2));
      const std::string token =
          keys.empty() ? "" : fmt::format(" (\u201c{}\u201d)", keys[static_cast<std::size_t>(one.key)]);
      const std::string title =
          fmt::format("{} {} {}: {:.2f} on key {}{}", one.layer->name,
                      routes_heads(options_.attention) ? "slot" : "head", one.head, one.weight, one.key, token);
      shown.push_back(attention_map({.title = title,
                                     .row_names = row_names_of_small_map(runner, *one.layer),
                                     .column_names = keys,
                                     .row_label = "query",
                                     .column_label = "key",
                                     .width = kSmallMap},
                                    maps_.at(one.layer->name)[one.head]));
    }
    return Figure{.caption = "vertical stripes",
                  .remark = fmt::format("the heads that give one key, other than the first, the largest mean weight "
                                        "over the queries after it, relative to equal weights on all visible keys; {}",
                                        kAttentionShades),
                  .blocks = {{{"maps", std::move(shown)}}},
                  .full_width = true};
  }

  std::vector<std::string> row_names_of_small_map(const ModelRunner& runner, const AttentionLayer& layer) const {
    const std::int64_t rows = maps_.at(layer.name).size(1);
    return rows > kMostNamesOfSmallMap ? std::vector<std::string>() : names(runner, layer, /*queries=*/true, rows);
  }

  TextSide side_of(const AttentionLayer& layer, bool queries) const {
    const bool source = !input_.target.defined() || layer.encoder || (layer.cross && !queries);
    return source ? TextSide::source : TextSide::target;
  }

  Figure draw_maps(const ModelRunner& runner, const AttentionLayer& layer, const at::Tensor& weights,
                   Findings& found) const {
    draw::HeatMap map{.title = layer.name};
    map.row_names = names(runner, layer, /*queries=*/true, weights.size(1));
    map.column_names = names(runner, layer, /*queries=*/false, weights.size(2));
    map.row_label = "query";
    map.column_label = "key";
    const at::Tensor most = std::get<0>(weights.max(0));
    map.width = kLargeMap;
    Json maps = Json::array({attention_map(map, most)});
    maps[0]["name"] = "maximum over heads";
    maps[0]["large"] = true;
    const at::Tensor out = router_weights(layer.name + ".select_out", found),
                     in = router_weights(layer.name + ".select_in", found),
                     heads = router_weights(layer.name + ".select", found);
    const bool routed = routes_heads(options_.attention);
    map.width = kSmallMap;
    map.row_names = row_names_of_small_map(runner, layer);
    for (std::int64_t h = 0; h < weights.size(0); ++h) {
      map.left.reset();
      map.below.reset();
      if (out.defined()) {
        map.left = cells_of(out.select(1, h));
      } else if (heads.defined()) {
        const std::int64_t shared = routed ? 0 : weights.size(0) - heads.size(2);  // the first heads have no router
        if (h >= shared) {
          map.left = cells_of(routed ? slot_weights(layer.name, h) : heads.select(1, 0).narrow(1, h - shared, 1));
        }
      }
      if (in.defined() && in.size(0) == weights.size(2)) {
        map.below = cells_of(in.select(1, h).t());
      }
      maps.push_back(attention_map(map, weights[h]));
      maps.back()["name"] = fmt::format("{} {}", routed ? "slot" : "head", h);
    }
    return {.caption = layer.name,
            .remark = remark_of(out.defined(), in.defined(), heads.defined()),
            .blocks = {{{"maps", std::move(maps)}}},
            .full_width = true};
  }

  static std::string remark_of(bool out, bool in, bool heads) {
    std::string remark = fmt::format("rows are queries, columns are keys; {}", kAttentionShades);
    remark += out ? "; on the left: weights of output experts" : heads ? "; on the left: routed heads" : "";
    remark += in ? "; below: weights of value experts" : "";
    return remark + (out || in || heads ? " (darkest shade: 1)" : "");
  }

  // Returns [T, H, E]; undefined if the layer has no such router.
  at::Tensor router_weights(const std::string& name, Findings& found) const {
    const auto routing = routings_.find(name);
    if (routing == routings_.end()) {
      return {};
    }
    const at::Tensor weights = dense_gates(routing->second, router_width());
    found.tensors[name] = weights;
    return weights;
  }

  // For routed heads, returns the gate of each head of the slot's group in slot h, [T, E].
  at::Tensor slot_weights(const std::string& layer, std::int64_t h) const {
    const RoutedExperts routing = routing_of_slots(routings_.at(layer + ".select"), options_.attention);
    const std::int64_t top_k = routing.index.size(2);
    const auto slot = [&](const at::Tensor& t) { return t.narrow(1, h / top_k, 1).narrow(2, h % top_k, 1); };
    return dense_gates({slot(routing.index), slot(routing.weight)}, router_width()).squeeze(1);
  }

  // Returns the number of heads or experts that the router selects from.
  std::int64_t router_width() const { return options_.attention.projection->router_width(options_.attention); }

  std::vector<std::string> names(const ModelRunner& runner, const AttentionLayer& layer, bool queries,
                                 std::int64_t expected) const {
    const TextSide side = side_of(layer, queries);
    std::vector<std::string> texts =
        token_texts(runner, (side == TextSide::source ? input_.tokens : input_.target)[0], side);
    if (std::ssize(texts) != expected) {
      return {};  // the keys include memory
    }
    std::ranges::transform(texts, texts.begin(), [](const std::string& text) { return display_text(text); });
    return texts;
  }

  // If a layer's keys are set to 0, its scores equal the position term. Layers are processed one at a time so that the
  // queries do not change.
  void add_score_terms(const ModelRunner& runner, Findings& found) const {
    for (const AttentionLayer& layer : runner.attention_layers()) {
      if (layer.cross) {
        continue;
      }
      const std::string scores = layer.name + ".scores";
      nn::Recorder whole({scores});
      models::Memory memory, memory_without_keys;
      runner.forward(input_, memory, whole);
      Replacer without_keys({scores});
      without_keys.instead[layer.name + ".k"] = at::zeros({1});
      runner.forward(input_, memory_without_keys, without_keys);
      const at::Tensor position = without_keys.at(scores)[0].to(at::kCPU, at::kFloat);
      const at::Tensor content = whole.at(scores)[0].to(at::kCPU, at::kFloat) - position;
      found.tensors[layer.name + ".content"] = content;
      found.tensors[layer.name + ".position"] = position;
      found.figures.push_back(draw_score_terms(layer, content, position));
    }
  }

  static Figure draw_score_terms(const AttentionLayer& layer, const at::Tensor& content, const at::Tensor& position) {
    Json maps = Json::array();
    const std::int64_t t = content.size(1), s = content.size(2);
    const at::Tensor future = at::ones({t, s}, at::kBool).triu(s - t + 1);  // scores are not masked
    for (std::int64_t h = 0; h < content.size(0); ++h) {
      for (const auto& [name, term] : {std::pair("content", content[h]), std::pair("position", position[h])}) {
        maps.push_back(heat_map_of({.title = fmt::format("head {}: {}", h, name),
                                    .row_label = "query",
                                    .column_label = "key",
                                    .width = kSmallMap},
                                   term.masked_fill(future, 0.0)));
      }
    }
    return {.caption = layer.name + ": content and position",
            .remark = "the two terms of the scores before the softmax",
            .blocks = {{{"maps", std::move(maps)}}},
            .full_width = true};
  }

  config::ModelOptions options_;
  std::map<std::string, at::Tensor, std::less<>> maps_;
  std::map<std::string, RoutedExperts, std::less<>> routings_;  // by router: "layer0.attention.select_in"
  InputBatch input_;
};

const AnalysisRegistration kMaps({.name = "maps",
                                  .order = 1,
                                  .about = "The attention weights of each query, at the start of the text.",
                                  .refusal = applies_always,
                                  .make = make_analysis<MapsAnalysis>});

}  // namespace
}  // namespace headroom::analyse
