// Composed heads (DCMHA): the size of the five terms of Eq. 7, and the terms and head maps of one pair of tokens.
#include <algorithm>
#include <optional>

#include "analyse.h"
#include "headroom/config/attention/composition_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/ops/head_map.h"
#include "layers.h"
#include "measures.h"

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

// One stage of one layer for one pair of the first sample: the last query and `key`.
struct StageExample {
  std::int64_t key = 0;
  at::Tensor columns;  // [H, 7]: before, the five terms, after
  at::Tensor map;      // [H, H] of the last query
  at::Tensor factors;  // [R H, S] of the keys; undefined without a low-rank map of keys
};

class CompositionAnalysis : public Analysis {
 public:
  explicit CompositionAnalysis(const ModelRunner& runner) : runner_(runner), options_(runner.options()) {
    for (const char* stage : {"pre", "post"}) {
      if (options_.attention.of<config::CompositionOptions>().composes(stage)) {
        stages_.emplace_back(stage);
      }
    }
  }

  std::int64_t samples() const override { return kComposedSamples; }
  bool wants(std::string_view name, const InputBatch& /*input*/) const override {
    constexpr std::array<std::string_view, 8> kWanted = {"key_terms", "query_terms",     "query_map", "source",
                                                         "scores",    "scores_composed", "probs",     "probs_composed"};
    return std::find(kWanted.begin(), kWanted.end(), value_of(name)) != kWanted.end();
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
      summary += fmt::format("{}{}: the largest dynamic term is {}, {:.1f}% of the total", summary.empty() ? "" : "; ",
                             stages_[s], kTerms[static_cast<std::size_t>(most)], 100.0 * shares[most].item<double>());
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

  // Selects the last query and the key whose weight composition changes most.
  void keep_example(const std::string& name, const std::string& layer, std::size_t stage, const StageMaps& maps,
                    const at::Tensor& before, const at::Tensor& after) {
    const at::Tensor changed = (values_.at("probs_composed") - values_.at("probs")).abs();
    const std::int64_t last = before.size(1) - 1;
    const at::Tensor visible = values_.at("probs").select(1, last).gt(0.0).any(0);
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
    example.map = values_.at("query_map").select(1, static_cast<std::int64_t>(stage))[last].to(at::kCPU);
    example.factors = key_factors(layer, stage);
    examples_[name] = std::move(example);
  }

  // Returns the factor u of the keys' low-rank map for each token: how much it reads from each head.
  at::Tensor key_factors(const std::string& layer, std::size_t stage) const {
    const config::AttentionOptions& o = options_.attention;
    if (!o.of<config::CompositionOptions>().has_low_rank("key") ||
        o.composition->cache_elements(o).value() == 0) {  // keys take no part in the composition
      return {};
    }
    const std::string prefix = layer + "." + stages_[stage] + ".k.";
    ops::HeadMapWeights weights{.tanh_gelu = o.of<config::CompositionOptions>().compose_activation ==
                                             config::ComposeActivation::gelu_tanh};
    weights.w1 = {runner_.parameter(prefix + "w1").to(at::kFloat)};
    weights.w2 = {runner_.parameter(prefix + "w2").to(at::kFloat)};
    const at::Tensor all = ops::head_map_factors(values_.at("source"), weights, config::Implementation::reference);
    return all.narrow(1, 0, o.of<config::CompositionOptions>().compose_rank * o.n_heads).t().to(at::kCPU).contiguous();
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
    // Normalised per layer, so that layers with small scores remain visible.
    const at::Tensor shares = all / all.sum(1, /*keepdim=*/true).clamp_min(1e-30);
    found.figures.push_back(
        {.caption = stages_[stage] == "pre" ? "terms before the softmax" : "terms after the softmax",
         .remark = "mean absolute value of each term (DCMHA, Eq. 7) as a share of the layer's total",
         .markup = heat_map_of({.title = "size of the terms",
                                .row_names = names,
                                .column_names = {"base", "q map", "q gate", "k map", "k gate"}},
                               shares, /*full=*/1.0)});
    return all;
  }

  void draw_example(const ModelRunner& runner, const AttentionLayer& layer, Findings& found) const {
    std::string markup = "<div class='maps'>", remark;
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
      const std::string name = layer.name + "." + stage;
      found.tensors[name + ".pair"] = example.columns;
      found.tensors[name + ".query_map"] = example.map;
      const auto add_map = [&](const std::string& title, const at::Tensor& values, const std::string& across,
                               const std::string& down, std::vector<std::string> columns) {
        markup += small_map({.title = title,
                             .column_names = std::move(columns),
                             .row_label = down,
                             .column_label = across,
                             .width = kTermMap},
                            values);
      };
      add_map(stage + ": map from head to head", example.map, "to head", "from head", {});
      add_map(stage + ": one pair, by head", example.columns, "", "head",
              {"before", "base", "q map", "q gate", "k map", "k gate", "after"});
      if (example.factors.defined()) {
        found.tensors[name + ".key_factors"] = example.factors;
        add_map(stage + ": factors of the keys", example.factors, "key", "rank and head", {});
      }
      remark = fmt::format("query {} (the last token), key {} ({}); one colour for positive values, one for negative",
                           display_text(queries.back()), display_text(key_text), example.key);
    }
    found.figures.push_back({.caption = layer.name, .remark = remark, .markup = markup + "</div>", .full_width = true});
  }

  ModelRunner runner_;
  config::ModelOptions options_;
  std::vector<std::string> stages_;
  std::map<std::string, at::Tensor> values_;  // of the current layer
  std::map<std::string, StageSums> sums_;
  std::map<std::string, StageExample> examples_;
  InputBatch first_;
};

std::string refuse_without_composition(const config::ModelOptions& options) {
  const config::AttentionOptions& o = options.attention;
  return o.composition->tensors(o, options.d_model).empty() ? "its heads are not composed (composition \"none\")" : "";
}

const AnalysisRegistration kComposition(
    {.name = "composition",
     .order = 6,
     .about = "How heads are composed: the five terms of composed scores and weights, and "
              "the maps from head to head.",
     .refusal = refuse_without_composition,
     .make = make_analysis<CompositionAnalysis>});

}  // namespace
}  // namespace headroom::analyse
