// Composed heads (DCMHA): the size of the five terms of Eq. 7, the terms and head maps of one pair of tokens (Figure
// 7), and the attention and the low-rank factors along the sequence (Figure 8).
#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "analyse.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/ops/head_map.h"
#include "measures.h"
#include "model_runner.h"

namespace headroom::analyse {

at::Tensor composed_terms(const StageMaps& maps, const at::Tensor& a) {
  const auto by_query = [&](std::int64_t which) {
    return at::einsum("hts,thn->nts", {a, maps.query.select(1, which)});
  };
  const auto by_key = [&](std::int64_t which) { return at::einsum("hts,shn->nts", {a, maps.key.select(1, which)}); };
  return at::stack({at::einsum("hts,hn->nts", {a, maps.base}), by_query(0), by_query(1), by_key(0), by_key(1)});
}

namespace {

constexpr std::int64_t kComposedSamples = 4;
constexpr double kTermMap = 300.0;  // width in pixels

// Sums over the samples, for one stage of one layer.
struct StageSums {
  at::Tensor size;  // [5], sum of |term|
  double composed = 0.0, pairs = 0.0;
  double residual = 0.0;  // largest |sum of terms - composed value|
};

// The factors of a low-rank map by rank and head: how much the map reads from each head and adds to it (W_k1 and W_k2
// for a key, W_q1 and W_q2 for a query).
struct LowRankFactors {
  at::Tensor in, out;  // [R H, tokens]; undefined without a low-rank map
};

// One stage of one layer for one pair of the first sample: the last query and `key`.
struct StageExample {
  std::int64_t key = 0;
  at::Tensor columns;          // [H, 7]: before, the five terms, after
  at::Tensor map;              // [H, H] of the last query
  at::Tensor before, after;    // [H, S] scores or weights of the last query; 0 for keys that it does not see
  LowRankFactors query, keys;  // of all tokens
};

class CompositionAnalysis : public Analysis {
 public:
  CompositionAnalysis(const ModelRunner& runner, const AnalyseRequest& request)
      : runner_(runner), options_(runner.options()), key_(request.key) {
    for (const char* stage : {"pre", "post"}) {
      if (options_.attention.of<config::CompositionOptions>().composes(stage)) {
        stages_.emplace_back(stage);
      }
    }
  }

  std::int64_t samples() const override { return kComposedSamples; }
  bool wants(std::string_view name, const InputBatch& /*input*/) const override {
    constexpr std::array<std::string_view, 9> kWanted = {
        "key_terms", "query_terms", "query_map", "x", "source", "scores", "scores_composed", "probs", "probs_composed"};
    return std::ranges::find(kWanted, value_of(name)) != kWanted.end();
  }
  void observe_value(std::string_view name, const at::Tensor& value, const InputBatch& /*input*/) override {
    const std::string what(value_of(name));
    values_[what] = value[0].to(at::kFloat);
    if (what == "probs_composed") {  // the last value of a layer
      add_layer(layer_of(name));
      values_.clear();
    }
  }
  void end_pass(const InputBatch& input) override {
    if (!first_.tokens.defined()) {
      first_ = input;
    }
  }

  Findings finish(const ModelRunner& runner) override {
    Findings found;
    std::string summary;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const at::Tensor all = term_sizes(runner, s, found).mean(0), shares = all / all.sum();
      const auto most = shares.narrow(0, 1, 4).argmax().item<std::int64_t>() + 1;
      const double share = shares[most].item<double>();
      summary += fmt::format("{}{}: ", summary.empty() ? "" : "; ", stages_[s]) +
                 (share > 0.0 ? fmt::format("the largest dynamic term is {}, {:.1f}% of the total",
                                            kTerms[static_cast<std::size_t>(most)], 100.0 * share)
                              : "the map is the same for all tokens");
    }
    for (const AttentionLayer& layer : runner.attention_layers()) {
      draw_example(runner, layer, found);
    }
    found.summary = summary;
    return found;
  }

 private:
  std::string key_of(const std::string& layer, const std::string& stage) const { return layer + "." + stage; }

  void add_layer(const std::string& layer) {
    const at::Tensor visible = values_.at("probs").gt(0.0).any(0);  // [T, S]
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const bool pre = stages_[s] == "pre";
      const at::Tensor before = values_.at(pre ? "scores" : "probs"),
                       after = values_.at(pre ? "scores_composed" : "probs_composed");
      StageMaps maps;
      const auto at = static_cast<std::int64_t>(s);
      maps.query = values_.at("query_terms").select(1, at);
      maps.key = values_.at("key_terms").select(1, at);
      maps.base = values_.at("query_map").select(1, at)[0] - maps.query[0].sum(0);
      const at::Tensor terms = composed_terms(maps, before);
      StageSums& sums = sums_[key_of(layer, stages_[s])];
      const double pairs = visible.sum().item<double>() * static_cast<double>(before.size(0));
      add_to(sums.size, (terms.abs() * visible).sum({1, 2, 3}).to(at::kDouble).to(at::kCPU));
      sums.composed += (after.abs() * visible).sum().item<double>();
      sums.pairs += pairs;
      sums.residual = std::max(sums.residual, ((terms.sum(0) - after) * visible).abs().max().item<double>());
      if (!first_.tokens.defined()) {
        keep_example(key_of(layer, stages_[s]), layer, s, maps, before, after);
      }
    }
  }

  // Selects the last query and the requested key, or else the key whose weight composition changes most.
  void keep_example(const std::string& name, const std::string& layer, std::size_t stage, const StageMaps& maps,
                    const at::Tensor& before, const at::Tensor& after) {
    const at::Tensor changed = (values_.at("probs_composed") - values_.at("probs")).abs();
    const std::int64_t last = before.size(1) - 1;
    const at::Tensor visible = values_.at("probs").select(1, last).gt(0.0).any(0);
    const at::Tensor by_key =
        (stages_.back() == "post" ? changed.select(1, last) : (after - before).select(1, last).abs() * visible).sum(0);
    StageExample example;
    example.key = key_.value_or(by_key.argmax().item<std::int64_t>());
    if (example.key < 0 || example.key >= before.size(2)) {
      user_error("analyse: --key: must be a position in the first sample, 0 to {}, got {}", before.size(2) - 1,
                 example.key);
    }
    const auto pair = [&](const at::Tensor& a) { return a.narrow(1, last, 1).narrow(2, example.key, 1); };
    StageMaps of_pair = maps;
    of_pair.query = maps.query.narrow(0, last, 1);
    of_pair.key = maps.key.narrow(0, example.key, 1);
    const at::Tensor terms = composed_terms(of_pair, pair(before)).view({5, -1});
    example.columns =
        at::cat({pair(before).view({1, -1}), terms, pair(after).view({1, -1})}).t().to(at::kCPU).contiguous();
    example.map = values_.at("query_map").select(1, static_cast<std::int64_t>(stage))[last].to(at::kCPU);
    example.before = (before.select(1, last) * visible).to(at::kCPU);
    example.after = (after.select(1, last) * visible).to(at::kCPU);
    const std::string prefix = layer + "." + stages_[stage];
    example.query = low_rank_factors(prefix + ".q.", values_.at("x"));
    example.keys = low_rank_factors(prefix + ".k.", values_.at("source"));
    examples_[name] = std::move(example);
  }

  // `prefix` is the parameters' prefix for one side; `tokens` are the side's inputs [n, d].
  LowRankFactors low_rank_factors(const std::string& prefix, const at::Tensor& tokens) const {
    const config::AttentionOptions& o = options_.attention;
    const at::Tensor w1 = runner_.find_parameter(prefix + "w1"), w2 = runner_.find_parameter(prefix + "w2");
    if (!w1.defined()) {
      return {};
    }
    const ops::HeadMapWeights weights{
        .w1 = {w1.to(at::kFloat)},
        .w2 = {w2.to(at::kFloat)},
        .gate = {},
        .tanh_gelu = o.of<config::CompositionOptions>().compose_activation == config::ComposeActivation::gelu_tanh};
    const at::Tensor all =
        ops::head_map_factors(tokens, weights, config::Implementation::reference).t().to(at::kCPU).contiguous();
    const std::int64_t rows = o.of<config::CompositionOptions>().compose_rank * o.n_heads;
    return {.in = all.narrow(0, 0, rows), .out = all.narrow(0, rows, rows)};
  }

  // Returns the mean size of each term of a stage, per layer: [L, 5].
  at::Tensor term_sizes(const ModelRunner& runner, std::size_t stage, Findings& found) const {
    std::vector<at::Tensor> rows;
    std::vector<std::string> names;
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const StageSums& sums = sums_.at(key_of(layer.name, stages_[stage]));
      rows.push_back(sums.size / std::max(sums.pairs, 1.0));
      names.push_back(layer_of(layer.name));
      Json& metrics = found.metrics[layer.name][stages_[stage]];
      for (std::size_t t = 0; t < kTerms.size(); ++t) {
        metrics["mean_size"][std::string(kTerms[t])] = rows.back()[static_cast<std::int64_t>(t)].item<double>();
      }
      metrics["mean_size"]["composed"] = sums.composed / std::max(sums.pairs, 1.0);
      metrics["residual"] = sums.residual;
    }
    const at::Tensor all = at::stack(rows);
    found.tensors["mean_size." + stages_[stage]] = all;
    if (!all.narrow(1, 1, 4).any().item<bool>()) {  // a static map has one term
      return all;
    }
    // Normalised per layer, so that layers with small scores remain visible.
    const at::Tensor shares = all / all.sum(1, /*keepdim=*/true).clamp_min(1e-30);
    found.figures.push_back(
        {.caption = stages_[stage] == "pre" ? "terms before the softmax" : "terms after the softmax",
         .remark = "mean absolute value of each term (DCMHA, Eq. 7) as a share of the layer's total",
         .blocks = Json::array({heat_map_of({.title = "size of the terms",
                                             .row_names = names,
                                             .column_names = {"base", "q map", "q gate", "k map", "k gate"}},
                                            shares, /*full=*/1.0)})});
    return all;
  }

  void draw_example(const ModelRunner& runner, const AttentionLayer& layer, Findings& found) const {
    Json maps = Json::array();
    std::string remark;
    const bool source = !first_.target.defined() || layer.encoder;
    const std::vector<std::string> queries =
        source ? token_texts(runner, first_.tokens[0], TextSide::source) : token_texts(runner, first_.target[0]);
    const std::vector<std::string> keys =
        layer.cross ? token_texts(runner, first_.tokens[0], TextSide::source) : queries;
    for (const std::string& stage : stages_) {
      const auto at = examples_.find(key_of(layer.name, stage));
      if (at == examples_.end()) {
        continue;
      }
      const StageExample& example = at->second;
      const std::string key_text =
          example.key < std::ssize(keys) ? keys[static_cast<std::size_t>(example.key)] : std::string("memory");
      Json& pair = found.metrics[layer.name][stage]["pair"];
      pair = {{"query", queries.back()},
              {"query_place", std::ssize(queries) - 1},
              {"key", key_text},
              {"key_place", example.key}};
      pair["before"] = to_vector(example.columns.select(1, 0));
      for (std::size_t t = 0; t < kTerms.size(); ++t) {
        pair[std::string(kTerms[t])] = to_vector(example.columns.select(1, static_cast<std::int64_t>(t) + 1));
      }
      pair["after"] = to_vector(example.columns.select(1, 6));
      add_maps_of_pair(layer.name + "." + stage, stage, example, found, maps);
      add_maps_along_sequence(layer.name + "." + stage, stage, example, {queries, keys}, found, maps);
      remark = fmt::format("query {} (the last token), key {} ({}); one colour for positive values, one for negative",
                           display_text(queries.back()), display_text(key_text), example.key);
    }
    found.figures.push_back(
        {.caption = layer.name, .remark = remark, .blocks = {{{"maps", std::move(maps)}}}, .full_width = true});
  }

  // Draws the maps of DCMHA, Figure 7. Adds their tensors as "<name>.pair" and so on.
  void add_maps_of_pair(const std::string& name, const std::string& stage, const StageExample& example, Findings& found,
                        Json& maps) const {
    found.tensors[name + ".pair"] = example.columns;
    found.tensors[name + ".query_map"] = example.map;
    maps.push_back(heat_map_of({.title = stage + ": map from head to head",
                                .row_label = "from head",
                                .column_label = "to head",
                                .width = kTermMap},
                               example.map));
    maps.push_back(heat_map_of({.title = stage + ": the pair, by head",
                                .column_names = {"before", "base", "q map", "q gate", "k map", "k gate", "after"},
                                .row_label = "head",
                                .width = kTermMap},
                               example.columns));
    for (const auto& [factor, values] : {std::pair("W_k1", example.keys.in), std::pair("W_k2", example.keys.out)}) {
      if (values.defined()) {
        maps.push_back(heat_map_of({.title = fmt::format("{}: {} of the key, by head", stage, factor),
                                    .row_label = "rank",
                                    .column_label = "head",
                                    .width = kTermMap},
                                   values.select(1, example.key)
                                       .view({options_.attention.of<config::CompositionOptions>().compose_rank, -1})));
      }
    }
  }

  struct TokenNames {
    const std::vector<std::string>&queries, &keys;
  };

  // Draws the maps of DCMHA, Figure 8: attention of the last query before and after composition, and the factors of
  // each side.
  void add_maps_along_sequence(const std::string& name, const std::string& stage, const StageExample& example,
                               const TokenNames& tokens, Findings& found, Json& maps) const {
    const char* const what = stage == "pre" ? "scores" : "weights";
    const auto add = [&](const std::string& tensor, const std::string& title, const at::Tensor& values,
                         const char* rows, const std::vector<std::string>& columns, const char* side) {
      if (!values.defined()) {
        return;
      }
      found.tensors[name + "." + tensor] = values;
      draw::HeatMap map{.title = stage + ": " + title, .row_label = rows, .column_label = side, .width = kTermMap};
      if (std::ssize(columns) == values.size(1)) {  // the keys may include memory
        std::ranges::transform(columns, std::back_inserter(map.column_names),
                               [](const std::string& text) { return display_text(text); });
      }
      maps.push_back(heat_map_of(map, values));
    };
    add("query_before", fmt::format("{} of the last query before composition", what), example.before, "head",
        tokens.keys, "key");
    add("query_after", fmt::format("{} of the last query after composition", what), example.after, "head", tokens.keys,
        "key");
    add("key_factors", "W_k1 of each key", example.keys.in, "rank and head", tokens.keys, "key");
    add("key_outputs", "W_k2 of each key", example.keys.out, "rank and head", tokens.keys, "key");
    add("query_factors", "W_q1 of each query", example.query.in, "rank and head", tokens.queries, "query");
    add("query_outputs", "W_q2 of each query", example.query.out, "rank and head", tokens.queries, "query");
  }

  ModelRunner runner_;
  config::ModelOptions options_;
  std::optional<std::int64_t> key_;
  std::vector<std::string> stages_;
  std::map<std::string, at::Tensor> values_;  // of the current layer
  std::map<std::string, StageSums> sums_;
  std::map<std::string, StageExample> examples_;
  InputBatch first_;
};

std::string refuse_without_composition(const config::ModelOptions& options) {
  const config::AttentionOptions& o = options.attention;
  return o.composition->has_maps(o, "pre") || o.composition->has_maps(o, "post")
             ? ""
             : fmt::format("it has no maps between heads (composition \"{}\")", o.composition.name());
}

const AnalysisRegistration kComposition(
    {.name = "composition",
     .order = 6,
     .about = "How heads are composed: the five terms of composed scores and weights, and the maps from head to head.",
     .refusal = refuse_without_composition,
     .make = make_analysis<CompositionAnalysis>});

}  // namespace
}  // namespace headroom::analyse
