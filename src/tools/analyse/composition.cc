#include "composition.h"

#include <algorithm>
#include <optional>

#include "analysis.h"
#include "foundation/draw/svg.h"
#include "headroom/config/attention_part.h"
#include "headroom/ops/head_map_factors.h"
#include "layers.h"

namespace headroom::inspect {

at::Tensor composed_terms(const StageMaps& maps, const at::Tensor& a) {
  const auto by_query = [&](std::int64_t which) {
    return at::einsum("hts,thn->nts", {a, maps.query.select(1, which)});
  };
  const auto by_key = [&](std::int64_t which) { return at::einsum("hts,shn->nts", {a, maps.key.select(1, which)}); };
  return at::stack({at::einsum("hts,hn->nts", {a, maps.base}), by_query(0), by_query(1), by_key(0), by_key(1)});
}

namespace {

constexpr std::int64_t kComposedSamples = 4;
constexpr double kPartMap = 300.0;

// Sums over samples of one stage of one layer.
struct StageSums {
  at::Tensor size;  // [5], of |term|
  double composed = 0.0, pairs = 0.0;
  double residual = 0.0;  // the largest of what the terms miss
};

// What is drawn of one stage of one layer, of the first sample.
struct StageExample {
  std::int64_t key = 0;
  at::Tensor columns;  // [H, 7]: before, the five terms, after; for the last query and `key`
  at::Tensor map;      // [H, H] of the last query
  at::Tensor factors;  // [R H, S] of the key's side; undefined where there are none
};

class Composition : public Analysis {
 public:
  explicit Composition(const Reader& reader) : reader_(reader), options_(reader.options()) {
    for (const char* stage : {"pre", "post"}) {
      if (options_.attention.composes(stage)) {
        stages_.emplace_back(stage);
      }
    }
  }

  std::int64_t samples() const override { return kComposedSamples; }
  bool wants(std::string_view name, const Reading& /*reading*/) const override {
    constexpr std::array<std::string_view, 8> kWanted = {"key_terms", "query_terms",     "query_map", "source",
                                                         "scores",    "scores_composed", "probs",     "probs_composed"};
    return std::find(kWanted.begin(), kWanted.end(), value_of(name)) != kWanted.end();
  }
  void see(std::string_view name, const at::Tensor& value, const Reading& /*reading*/) override {
    const std::string what(value_of(name));
    held_[what] = value[0].to(at::kFloat);
    if (what == "probs_composed") {  // the last of a layer
      take(layer_of(name));
      held_.clear();
    }
  }
  void end(const Reading& reading) override {
    if (!first_.tokens.defined()) {
      first_ = reading;
    }
  }

  Findings finish(const Reader& reader) override {
    Findings found;
    std::string summary;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const at::Tensor mean = sizes(reader, s, found);
      const at::Tensor all = mean.mean(0), shares = all / all.sum();
      const auto most = shares.narrow(0, 1, 4).argmax().item<std::int64_t>() + 1;
      summary += fmt::format("{}{}: the largest dynamic term is {}, {:.1f}% of all", summary.empty() ? "" : "; ",
                             stages_[s], kTerms[static_cast<std::size_t>(most)], 100.0 * shares[most].item<double>());
    }
    for (const AttentionLayer& layer : reader.attention_layers()) {
      draw_example(reader, layer, found);
    }
    found.summary = summary;
    return found;
  }

 private:
  std::string key_of(const std::string& layer, const std::string& stage) const { return layer + "." + stage; }

  void take(const std::string& layer) {
    const at::Tensor visible = held_.at("probs").gt(0.0).any(0);  // [T, S]
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const bool pre = stages_[s] == "pre";
      const at::Tensor before = held_.at(pre ? "scores" : "probs"),
                       after = held_.at(pre ? "scores_composed" : "probs_composed");
      StageMaps maps;
      const auto at = static_cast<std::int64_t>(s);
      maps.query = held_.at("query_terms").select(1, at);
      maps.key = held_.at("key_terms").select(1, at);
      maps.base = held_.at("query_map").select(1, at)[0] - maps.query[0].sum(0);
      const at::Tensor terms = composed_terms(maps, before);
      StageSums& sums = sums_[key_of(layer, stages_[s])];
      const double pairs = visible.sum().item<double>() * static_cast<double>(before.size(0));
      const at::Tensor size = (terms.abs() * visible).sum({1, 2, 3}).to(at::kDouble).to(at::kCPU);
      sums.size = sums.size.defined() ? sums.size + size : size;
      sums.composed += (after.abs() * visible).sum().item<double>();
      sums.pairs += pairs;
      sums.residual = std::max(sums.residual, ((terms.sum(0) - after) * visible).abs().max().item<double>());
      if (!first_.tokens.defined()) {
        keep_example(key_of(layer, stages_[s]), layer, s, maps, before, after);
      }
    }
  }

  // The last query, and the key whose weight composing changes most.
  void keep_example(const std::string& name, const std::string& layer, std::size_t stage, const StageMaps& maps,
                    const at::Tensor& before, const at::Tensor& after) {
    const at::Tensor changed = (held_.at("probs_composed") - held_.at("probs")).abs();
    const std::int64_t last = before.size(1) - 1;
    const at::Tensor visible = held_.at("probs").select(1, last).gt(0.0).any(0);
    const at::Tensor by_key =
        (stages_.back() == "post" ? changed.select(1, last) : (after - before).select(1, last).abs() * visible).sum(0);
    StageExample example;
    example.key = by_key.argmax().item<std::int64_t>();
    const auto pair = [&](const at::Tensor& a) { return a.narrow(1, last, 1).narrow(2, example.key, 1); };
    StageMaps of_pair = maps;
    of_pair.query = maps.query.narrow(0, last, 1);
    of_pair.key = maps.key.narrow(0, example.key, 1);
    const at::Tensor terms = composed_terms(of_pair, pair(before)).view({5, -1});
    example.columns =
        at::cat({pair(before).view({1, -1}), terms, pair(after).view({1, -1})}).t().to(at::kCPU).contiguous();
    example.map = held_.at("query_map").select(1, static_cast<std::int64_t>(stage))[last].to(at::kCPU);
    example.factors = key_factors(layer, stage);
    examples_[name] = std::move(example);
  }

  // What each token offers as a key: which heads it gathers from, u of the stage's low-rank map.
  at::Tensor key_factors(const std::string& layer, std::size_t stage) const {
    const config::AttentionOptions& o = options_.attention;
    if (std::find(o.compose_low_rank.begin(), o.compose_low_rank.end(), "key") == o.compose_low_rank.end() ||
        o.composition->cache_elements(o).value() == 0) {  // keys have no part in it
      return {};
    }
    const std::string prefix = layer + "." + stages_[stage] + ".k.";
    ops::HeadMapWeights weights{.tanh_gelu = o.compose_activation == config::ComposeActivation::gelu_tanh};
    weights.w1 = {reader_.parameter(prefix + "w1").to(at::kFloat)};
    weights.w2 = {reader_.parameter(prefix + "w2").to(at::kFloat)};
    const at::Tensor all = ops::head_map_factors(held_.at("source"), weights, config::Implementation::reference);
    return all.narrow(1, 0, o.compose_rank * o.n_heads).t().to(at::kCPU).contiguous();
  }

  // Mean sizes of the terms by layer [L, 5] of a stage.
  at::Tensor sizes(const Reader& reader, std::size_t stage, Findings& found) const {
    std::vector<at::Tensor> rows;
    std::vector<std::string> names;
    for (const AttentionLayer& layer : reader.attention_layers()) {
      const StageSums& sums = sums_.at(key_of(layer.name, stages_[stage]));
      rows.push_back(sums.size / std::max(sums.pairs, 1.0));
      names.push_back(layer.name.substr(0, layer.name.rfind('.')));
      Json& figures = found.figures[layer.name][stages_[stage]];
      for (std::size_t t = 0; t < kTerms.size(); ++t) {
        figures["mean_size"][std::string(kTerms[t])] = rows.back()[static_cast<std::int64_t>(t)].item<double>();
      }
      figures["mean_size"]["composed"] = sums.composed / std::max(sums.pairs, 1.0);
      figures["residual"] = sums.residual;
    }
    const at::Tensor all = at::stack(rows);
    found.tensors["mean_size." + stages_[stage]] = all;
    // Of each layer's largest, so that layers of small scores show as well.
    const at::Tensor shares = all / all.sum(1, /*keepdim=*/true).clamp_min(1e-30);
    found.pictures.push_back(
        {.caption = stages_[stage] == "pre" ? "terms before the softmax" : "terms after the softmax",
         .remark = "mean size of each term of Eq. 7 as a share of all five, by layer",
         .markup = draw::heat_map({.title = "size of the terms",
                                   .cells = cells_of(shares),
                                   .shade = {.full = 1.0},
                                   .row_names = names,
                                   .column_names = {"base", "q map", "q gate", "k map", "k gate"}})});
    return all;
  }

  void draw_example(const Reader& reader, const AttentionLayer& layer, Findings& found) const {
    std::string markup = "<div class='maps'>", remark;
    const bool source = !first_.target.defined() || layer.encoder;
    const std::vector<std::string> queries =
        source ? texts_of(reader, first_.tokens[0], Side::source) : texts_of(reader, first_.target[0]);
    const std::vector<std::string> keys = layer.cross ? texts_of(reader, first_.tokens[0], Side::source) : queries;
    for (const std::string& stage : stages_) {
      const auto at = examples_.find(key_of(layer.name, stage));
      if (at == examples_.end()) {
        continue;
      }
      const StageExample& example = at->second;
      const std::string key_text =
          example.key < std::ssize(keys) ? keys[static_cast<std::size_t>(example.key)] : std::string("memory");
      Json& pair = found.figures[layer.name][stage]["pair"];
      pair = {{"query", queries.back()},
              {"query_place", std::ssize(queries) - 1},
              {"key", key_text},
              {"key_place", example.key}};
      pair["before"] = numbers_of(example.columns.select(1, 0));
      for (std::size_t t = 0; t < kTerms.size(); ++t) {
        pair[std::string(kTerms[t])] = numbers_of(example.columns.select(1, static_cast<std::int64_t>(t) + 1));
      }
      pair["after"] = numbers_of(example.columns.select(1, 6));
      const std::string name = layer.name + "." + stage;
      found.tensors[name + ".pair"] = example.columns;
      found.tensors[name + ".query_map"] = example.map;
      markup += drawn(stage + ": from head to head", example.map, "to head", "from head", {});
      markup += drawn(stage + ": one pair, by head", example.columns, "", "head",
                      {"before", "base", "q map", "q gate", "k map", "k gate", "after"});
      if (example.factors.defined()) {
        found.tensors[name + ".key_factors"] = example.factors;
        markup += drawn(stage + ": what keys gather from heads", example.factors, "key", "rank and head", {});
      }
      remark = fmt::format("query {} (the last token), key {} ({}); two colours: above and below 0",
                           shown(queries.back()), shown(key_text), example.key);
    }
    found.pictures.push_back({.caption = layer.name, .remark = remark, .markup = markup + "</div>", .whole = true});
  }

  static std::string drawn(const std::string& name, const at::Tensor& values, const std::string& across,
                           const std::string& down, std::vector<std::string> columns) {
    return fmt::format("<div><p class='name'>{}</p>{}</div>\n", draw::escape(name),
                       draw::heat_map({.title = name,
                                       .cells = cells_of(values),
                                       .shade = {.full = values.abs().max().item<double>()},
                                       .column_names = std::move(columns),
                                       .row_label = down,
                                       .column_label = across,
                                       .width = kPartMap}));
  }

  Reader reader_;
  config::ModelOptions options_;
  std::vector<std::string> stages_;
  std::map<std::string, at::Tensor> held_;  // of the layer under way
  std::map<std::string, StageSums> sums_;
  std::map<std::string, StageExample> examples_;
  Reading first_;
};

std::string refuse_without_composition(const config::ModelOptions& options) {
  const config::AttentionOptions& o = options.attention;
  return o.composition->tensors(o, options.d_model).empty() ? "its heads are not composed (composition \"none\")" : "";
}

const Registration kComposition({.name = "composition",
                                 .place = 6,
                                 .about = "How heads are composed: the five terms of a composed score, and the maps "
                                          "from head to head.",
                                 .refusal = refuse_without_composition,
                                 .make = [](const Reader& reader) -> std::unique_ptr<Analysis> {
                                   return std::make_unique<Composition>(reader);
                                 }});

}  // namespace
}  // namespace headroom::inspect
