// Attention maps of the beginning of the text, as the SwitchHead paper draws them (Figures 2-6 of its appendix): of
// each head, with the weights of the output experts at their left and of the value experts below, and their maximum;
// with relative positions also what of the scores is content and what is position.
#include <algorithm>
#include <cmath>

#include "analysis.h"
#include "foundation/draw/svg.h"
#include "headroom/config/attention_part.h"
#include "layers.h"

namespace headroom::inspect {
namespace {

constexpr double kLargeMap = 480.0, kSmallMap = 240.0;

class Maps : public Analysis {
 public:
  explicit Maps(const Reader& reader) : options_(reader.options()) {}

  std::int64_t samples() const override { return 1; }
  bool wants(std::string_view name, const Reading& /*reading*/) const override {
    const std::string_view value = value_of(name);
    return value == kFinalWeights ||
           (name.find(".select") != std::string_view::npos && name.find(".ffn.") == std::string_view::npos &&
            (value == "index" || value == "weight"));
  }
  void see(std::string_view name, const at::Tensor& value, const Reading& /*reading*/) override {
    const std::string_view what = value_of(name);
    if (what == kFinalWeights) {
      maps_[layer_of(name)] = value[0].to(at::kCPU, at::kFloat);
    } else {
      Choice& choice = choices_[layer_of(name)];
      (what == "index" ? choice.index : choice.weight) = value.to(at::kCPU);
    }
  }
  void end(const Reading& reading) override { reading_ = reading; }

  Findings finish(const Reader& reader) override {
    Findings found;
    for (const AttentionLayer& layer : reader.attention_layers()) {
      const auto map = maps_.find(layer.name);
      if (map == maps_.end()) {
        continue;
      }
      const at::Tensor& weights = map->second;  // [H, T, S]
      found.tensors[layer.name] = weights;
      found.figures[layer.name] = measured(weights, layer);
      found.pictures.push_back(drawn(reader, layer, weights, found));
    }
    constexpr config::AttentionExtent kOneToken{.queries = 1, .sources = 1};
    const bool has_term = options_.attention.position->offsets(kOneToken).value() > 0;  // of its own in the scores
    if (has_term && reading_.tokens.defined()) {
      add_parts(reader, found);
    }
    found.summary = fmt::format("attention maps of {} layers over {} tokens", maps_.size(), reading_.tokens.size(1));
    return found;
  }

 private:
  // Of each head: how spread its weights are, and where they go.
  static Json measured(const at::Tensor& weights, const AttentionLayer& layer) {
    Json figures = Json::object();
    const at::Tensor entropy = at::special_entr(weights).sum(-1).mean(-1);
    figures["entropy"] = numbers_of(entropy);
    figures["first_token"] = numbers_of(weights.select(2, 0).mean(-1));
    const std::int64_t t = weights.size(1), s = weights.size(2);
    if (!layer.cross && s >= t) {
      figures["own_token"] = numbers_of(weights.diagonal(s - t, 1, 2).mean(-1));
      if (t > 1) {
        figures["previous_token"] = numbers_of(weights.narrow(1, 1, t - 1).diagonal(s - t, 1, 2).mean(-1));
      }
    }
    return figures;
  }

  Side side_of(const AttentionLayer& layer, bool queries) const {
    const bool source = !reading_.target.defined() || layer.encoder || (layer.cross && !queries);
    return source ? Side::source : Side::target;
  }

  Picture drawn(const Reader& reader, const AttentionLayer& layer, const at::Tensor& weights, Findings& found) const {
    draw::HeatMap map{.title = layer.name};
    map.row_names = names(reader, layer, /*queries=*/true, weights.size(1));
    map.column_names = names(reader, layer, /*queries=*/false, weights.size(2));
    map.row_label = "query";
    map.column_label = "key";
    const at::Tensor most = std::get<0>(weights.max(0));
    map.cells = cells_of(most);
    map.shade.full = most.max().item<double>();
    map.width = kLargeMap;
    std::string markup = "<div class='maps'><div class='large'><p class='name'>maximum over heads</p>" +
                         draw::heat_map(map) + "</div>\n";
    const at::Tensor out = side_weights(layer.name + ".select_out", found),
                     in = side_weights(layer.name + ".select_in", found),
                     chosen = side_weights(layer.name + ".select", found);
    const bool routed = chooses_heads(options_.attention);
    map.width = kSmallMap;
    for (std::int64_t h = 0; h < weights.size(0); ++h) {
      map.cells = cells_of(weights[h]);
      map.shade.full = weights[h].max().item<double>();
      map.left.reset();
      map.below.reset();
      if (out.defined()) {
        map.left = cells_of(out.select(1, h));
      } else if (chosen.defined()) {
        map.left = cells_of(routed ? slot_weights(layer.name, h) : chosen.select(1, 0).narrow(1, h, 1));
      }
      if (in.defined() && in.size(0) == weights.size(2)) {
        map.below = cells_of(in.select(1, h).t());
      }
      markup +=
          fmt::format("<div><p class='name'>{} {}</p>{}</div>\n", routed ? "choice" : "head", h, draw::heat_map(map));
    }
    return {.caption = layer.name,
            .remark = remark_of(out.defined(), in.defined(), chosen.defined()),
            .markup = markup + "</div>",
            .whole = true};
  }

  static std::string remark_of(bool out, bool in, bool chosen) {
    std::string remark = "rows are queries, columns keys; shades from 0 to each map's largest weight";
    remark += out ? "; at the left the weights of the output experts" : chosen ? "; at the left the heads chosen" : "";
    remark += in ? fmt::format("{} below those of the value experts", out ? "," : ";") : "";
    return remark + (out || in || chosen ? " (full: 1)" : "");
  }

  // By the token; undefined where there is no choice.
  at::Tensor side_weights(const std::string& name, Findings& found) const {
    const auto choice = choices_.find(name);
    if (choice == choices_.end()) {
      return {};
    }
    const at::Tensor weights = spread_choice(choice->second, choices_of(name));
    found.tensors[name] = weights;
    return weights;
  }

  // Routed heads: which head a query's h-th choice is, [T, E].
  at::Tensor slot_weights(const std::string& layer, std::int64_t h) const {
    const Choice& choice = choices_.at(layer + ".select");
    return spread_choice({choice.index.narrow(2, h, 1), choice.weight.narrow(2, h, 1)}, choices_of(layer + ".select"))
        .squeeze(1);
  }

  // That a token may choose from.
  std::int64_t choices_of(const std::string& name) const {
    const config::AttentionOptions& o = options_.attention;
    return name.ends_with(".select") ? o.projection->all_heads(o) : o.n_experts;
  }

  std::vector<std::string> names(const Reader& reader, const AttentionLayer& layer, bool queries,
                                 std::int64_t wanted) const {
    const Side side = side_of(layer, queries);
    std::vector<std::string> texts =
        texts_of(reader, (side == Side::source ? reading_.tokens : reading_.target)[0], side);
    if (std::ssize(texts) != wanted) {
      return {};  // memory comes before them
    }
    std::transform(texts.begin(), texts.end(), texts.begin(), [](const std::string& text) { return shown(text); });
    return texts;
  }

  // With keys of 0 the scores are what positions make of them; a layer at a time, so that its queries stay.
  void add_parts(const Reader& reader, Findings& found) const {
    for (const AttentionLayer& layer : reader.attention_layers()) {
      if (layer.cross) {
        continue;
      }
      const std::string scores = layer.name + ".scores";
      nn::Recorder whole({scores});
      models::Memory none, none_again;
      reader.read(reading_, none, whole);
      Replacer without_keys({scores});
      without_keys.instead[layer.name + ".k"] = at::zeros({1});
      reader.read(reading_, none_again, without_keys);
      const at::Tensor position = without_keys.at(scores)[0].to(at::kCPU, at::kFloat);
      const at::Tensor content = whole.at(scores)[0].to(at::kCPU, at::kFloat) - position;
      found.tensors[layer.name + ".content"] = content;
      found.tensors[layer.name + ".position"] = position;
      found.pictures.push_back(drawn_parts(layer, content, position));
    }
  }

  static Picture drawn_parts(const AttentionLayer& layer, const at::Tensor& content, const at::Tensor& position) {
    std::string markup = "<div class='maps'>";
    const std::int64_t t = content.size(1), s = content.size(2);
    const at::Tensor unseen = at::ones({t, s}, at::kBool).triu(s - t + 1);  // not masked there
    for (std::int64_t h = 0; h < content.size(0); ++h) {
      for (const auto& [name, part] : {std::pair("content", content[h]), std::pair("position", position[h])}) {
        const at::Tensor visible = part.masked_fill(unseen, 0.0);
        markup += fmt::format("<div><p class='name'>head {}: {}</p>{}</div>\n", h, name,
                              draw::heat_map({.title = name,
                                              .cells = cells_of(visible),
                                              .shade = {.full = visible.abs().max().item<double>()},
                                              .row_label = "query",
                                              .column_label = "key",
                                              .width = kSmallMap}));
      }
    }
    return {.caption = layer.name + ": content and position",
            .remark = "the two terms of the scores before the softmax",
            .markup = markup + "</div>",
            .whole = true};
  }

  config::ModelOptions options_;
  std::map<std::string, at::Tensor, std::less<>> maps_;
  std::map<std::string, Choice, std::less<>> choices_;
  Reading reading_;
};

const Registration kMaps({.name = "maps",
                          .place = 1,
                          .about = "Where each query looks: the weights of its keys, at the beginning of the text.",
                          .refusal = refuse_without_scores,
                          .make = [](const Reader& reader) -> std::unique_ptr<Analysis> {
                            return std::make_unique<Maps>(reader);
                          }});

}  // namespace
}  // namespace headroom::inspect
