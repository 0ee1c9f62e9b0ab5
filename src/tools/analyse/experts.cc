// Expert usage: the load (MoA, Figures 3 and 4), the tokens routed to each expert, and the words most
// specific to it (MoA, Table 4) by pointwise mutual information, log2 of p(word, expert) / (p(word) p(expert)).
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "analyse.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/charts.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "model_runner.h"
#include "vocabulary.h"

namespace headroom::analyse {
namespace {

constexpr std::int64_t kListed = 10;       // tokens and words per expert
constexpr std::int64_t kMostColumns = 32;  // of a routing map
constexpr double kMinCount = 5.0;          // minimum word count for estimating its mutual information
constexpr std::int64_t kInitialRows = 1024;

// Counts how often each token, word or token kind was routed to each expert.
class Counts {
 public:
  // `items` is [n], with -1 ignored; `experts` is [n, m], each element below `width`.
  void add(const at::Tensor& items, const at::Tensor& experts, std::int64_t width) {
    const at::Tensor known = items.ge(0).nonzero().squeeze(1);
    if (known.numel() == 0) {
      return;
    }
    const at::Tensor rows = items.index_select(0, known);
    const std::int64_t needed = rows.max().item<std::int64_t>() + 1;
    if (!counts_.defined() || counts_.size(0) < needed) {
      const std::int64_t capacity = std::max({kInitialRows, counts_.defined() ? 2 * counts_.size(0) : 0, needed});
      const at::Tensor grown = at::zeros({capacity, width}, at::kInt);
      if (counts_.defined()) {
        grown.narrow(0, 0, counts_.size(0)).copy_(counts_);
      }
      counts_ = grown;
    }
    const at::Tensor cells = (rows.unsqueeze(1) * width + experts.index_select(0, known)).reshape({-1});
    counts_.view({-1}).scatter_add_(0, cells, at::ones(cells.sizes(), at::kInt));
  }
  // Returns [n, width] float64; undefined if nothing was counted.
  at::Tensor table(std::int64_t n) const {
    return counts_.defined() ? counts_.narrow(0, 0, std::min(n, counts_.size(0))).to(at::kDouble) : at::Tensor();
  }

 private:
  at::Tensor counts_;
};

// Statistics of one router: "layer3.attention.select_in".
struct RouterStatistics {
  std::int64_t n_heads = 1, n_experts = 1;
  at::Tensor count, gate_sum;  // [H, E]: tokens routed to each expert, and the sum of their gates
  at::Tensor index;            // [n, H, K]: routed experts whose gates are still to be observed
  std::int64_t calls = 0;      // in the current pass
  Counts tokens, words;
};

struct RankedText {
  std::int64_t index = 0;  // of the text
  std::string text;
  double value = 0.0, count = 0.0;
};

Json to_json(const std::vector<RankedText>& all, const char* text, const char* value) {
  return transformed(all, [&](const RankedText& one) -> Json {
    return {{text, one.text}, {value, one.value}, {"count", one.count}};
  });
}

class ExpertsAnalysis : public Analysis {
 public:
  explicit ExpertsAnalysis(const ModelRunner& runner) : options_(runner.options()), vocabulary_(runner) {}

  bool wants_all_text() const override { return true; }
  bool wants(std::string_view name, const InputBatch& /*input*/) const override {
    const std::string_view value = value_of(name);
    if (name.find(".select") == std::string_view::npos || (value != "index" && value != "weight")) {
      return false;
    }
    // Routing that both projections share is counted once.
    return !(options_.attention.of<config::ExpertOptions>().shared_selection &&
             name.find(".cross.") == std::string_view::npos && name.find(".select_out.") != std::string_view::npos);
  }
  void begin_pass(const InputBatch& input) override {
    source_ = tensors_of(vocabulary_.index(input.tokens, TextSide::source));
    target_ = input.target.defined() ? std::optional(tensors_of(vocabulary_.index(input.target, TextSide::target)))
                                     : std::nullopt;
    for (auto& [name, router] : routers_) {
      router.calls = 0;
    }
    n_tokens_ += input.n_tokens();
  }

  void observe_value(std::string_view name, const at::Tensor& value, const InputBatch& input) override {
    RouterStatistics& router = router_of(name, value);
    router.calls += value_of(name) == "index" ? 1 : 0;
    const Indices& read = indices_for(name, router);
    const std::int64_t b = input.tokens.size(0), n = read.token.numel();
    // Drops the memory, which precedes these tokens and has already been counted.
    const at::Tensor own = value.view({b, -1, value.size(1), value.size(2)})
                               .narrow(1, value.size(0) / b - n / b, n / b)
                               .flatten(0, 1)
                               .to(at::kCPU);
    if (value_of(name) == "index") {
      router.index = own;
      return;
    }
    const std::int64_t width = router.n_heads * router.n_experts;
    const at::Tensor offset = at::arange(router.n_heads, at::kLong).view({1, -1, 1}) * router.n_experts;
    const at::Tensor flat = (router.index + offset).flatten(1);  // [n, H K]
    router.count.view({-1}).add_(at::bincount(flat.reshape({-1}), {}, width));
    router.gate_sum.view({-1}).scatter_add_(0, flat.reshape({-1}), own.reshape({-1}).to(at::kDouble));
    router.tokens.add(read.token, flat, width);
    router.words.add(read.word, flat, width);
  }

  Findings finish(const ModelRunner& /*runner*/) override {
    Findings found;
    double least_entropy = 1.0;
    std::int64_t unused = 0;
    for (const auto& [name, router] : routers_) {
      const at::Tensor load = router.count / router.count.sum(-1, /*keepdim=*/true).clamp_min(1.0);
      found.tensors[name + ".count"] = router.count.to(at::kLong);
      found.metrics[name] = metrics_of(router, load);
      for (const double entropy : found.metrics[name].at("entropy").get<std::vector<double>>()) {
        least_entropy = std::min(least_entropy, entropy);
      }
      unused += found.metrics[name].at("unused").get<std::int64_t>();
    }
    draw_loads(found);
    draw_routing(found);
    draw_tables(found);
    found.summary =
        fmt::format("{} routers over {} tokens; lowest load entropy: {:.3f} of its maximum; unused experts: {}",
                    routers_.size(), n_tokens_, least_entropy, unused);
    return found;
  }

 private:
  struct Indices {
    at::Tensor token, word;
  };
  static Indices tensors_of(const Vocabulary::Indices& indices) {
    return {at::tensor(indices.token, at::kLong), at::tensor(indices.word, at::kLong)};
  }

  RouterStatistics& router_of(std::string_view name, const at::Tensor& value) {
    RouterStatistics& router = routers_[layer_of(name)];
    if (!router.count.defined()) {
      const config::AttentionOptions& o = options_.attention;
      router.n_heads = value.size(1);
      router.n_experts = name.find(".ffn.") != std::string_view::npos
                             ? options_.of_layer(layer_index(name)).mlp.n_experts
                             : o.projection->router_width(o);
      router.count = at::zeros({router.n_heads, router.n_experts}, at::kDouble);
      router.gate_sum = at::zeros_like(router.count);
    }
    return router;
  }

  // Returns the indices of the sequence being routed. A classifier of pairs encodes its two texts one after the other.
  const Indices& indices_for(std::string_view name, const RouterStatistics& router) const {
    if (options_.kind == config::ModelKind::classifier) {
      return router.calls > 1 && target_ ? *target_ : source_;
    }
    const bool source =
        !target_ || name.starts_with("encoder.") ||
        (name.find(".cross.") != std::string_view::npos && name.find(".select_in.") != std::string_view::npos);
    return source ? source_ : *target_;
  }

  Json metrics_of(const RouterStatistics& router, const at::Tensor& load) const {
    Json metrics = Json::object();
    // Divided by log E, so that a balanced load gives 1.
    const double even = std::log(static_cast<double>(std::max<std::int64_t>(router.n_experts, 2)));
    metrics["entropy"] = to_vector(at::special_entr(load).sum(-1) / even);
    metrics["unused"] = router.count.eq(0.0).sum().item<std::int64_t>();
    metrics["most_used"] = load_of(load.argmax().item<std::int64_t>(), router, load);
    metrics["least_used"] = load_of(load.argmin().item<std::int64_t>(), router, load);
    const at::Tensor gates = router.gate_sum / router.count.clamp_min(1.0);
    const std::vector<double> shares = to_vector(load), mean_gates = to_vector(gates);
    Json experts = Json::array();
    for (std::int64_t x = 0; x < router.n_heads * router.n_experts; ++x) {
      const auto at = static_cast<std::size_t>(x);
      Json one = {{"head", x / router.n_experts},
                  {"expert", x % router.n_experts},
                  {"share", shares[at]},
                  {"mean_gate", mean_gates[at]}};
      one["tokens"] = to_json(most_frequent(router, x), "token", "share");
      one["tokens_by_pmi"] = to_json(by_information(router, router.tokens, vocabulary_.tokens(), x), "token", "pmi");
      one["words_by_pmi"] = to_json(by_information(router, router.words, vocabulary_.words(), x), "word", "pmi");
      experts.push_back(std::move(one));
    }
    metrics["experts"] = std::move(experts);
    return metrics;
  }

  static Json load_of(std::int64_t x, const RouterStatistics& router, const at::Tensor& load) {
    const double share = load.view({-1})[x].item<double>();
    return {{"head", x / router.n_experts}, {"expert", x % router.n_experts}, {"share", share}};
  }

  // Returns the `kListed` texts with the largest `value` [n] among those that occur at least `least` times, in
  // descending order. Ties go to the more frequent text.
  static std::vector<RankedText> largest(const at::Tensor& value, const at::Tensor& counts, const TextIndex& texts,
                                         double least) {
    constexpr double kTieBreak = 1e-9;
    const at::Tensor ranked =
        (value + kTieBreak * counts.clamp_min(1.0).log()).masked_fill(counts.lt(least), -HUGE_VAL);
    const auto [top, index] = ranked.topk(std::min(kListed, ranked.size(0)));
    std::vector<RankedText> all;
    for (std::int64_t i = 0; i < top.size(0) && std::isfinite(top[i].item<double>()); ++i) {
      const auto at = index[i].item<std::int64_t>();
      all.push_back({at, texts.text(at), value[at].item<double>(), counts[at].item<double>()});
    }
    return all;
  }

  std::vector<RankedText> most_frequent(const RouterStatistics& router, std::int64_t x) const {
    const at::Tensor table = router.tokens.table(vocabulary_.tokens().size());
    if (!table.defined()) {
      return {};
    }
    const at::Tensor counts = table.select(1, x);
    return largest(counts / counts.sum().clamp_min(1.0), counts, vocabulary_.tokens(), 1.0);
  }

  // Ranks texts by their pointwise mutual information with the expert, relative to the other experts of its head.
  std::vector<RankedText> by_information(const RouterStatistics& router, const Counts& of, const TextIndex& texts,
                                         std::int64_t x) const {
    const at::Tensor table = of.table(texts.size());
    if (!table.defined()) {
      return {};
    }
    const at::Tensor head = table.narrow(1, x / router.n_experts * router.n_experts, router.n_experts);
    const at::Tensor counts = table.select(1, x), by_text = head.sum(1);
    const double all = head.sum().item<double>(), of_expert = counts.sum().item<double>();
    if (all == 0.0 || of_expert == 0.0) {
      return {};
    }
    const at::Tensor information = (counts * all / (by_text.clamp_min(1.0) * of_expert)).log2();
    return largest(information, counts, texts, kMinCount);
  }

  // Groups the routers by kind ("attention.select_in", "attention.select", "ffn.select") and number of experts.
  void draw_loads(Findings& found) const {
    std::map<std::pair<std::string, std::int64_t>, std::vector<std::string>> kinds;
    for (const auto& [name, router] : routers_) {
      kinds[{name.substr(name.rfind('.', name.rfind('.') - 1) + 1), router.count.numel()}].push_back(name);
    }
    for (const auto& [key, names] : kinds) {
      const std::string& kind = key.first;
      found.figures.push_back(load_curves(kind, names));
      found.figures.push_back(load_map(kind, names));
    }
  }

  // Draws the load curves of MoA, Figures 3 and 4.
  Figure load_curves(const std::string& kind, const std::vector<std::string>& names) const {
    Json lines = Json::array();
    const std::size_t step = ceil_div(names.size(), std::size_t{draw::kStyles});
    for (std::size_t i = 0; i < names.size(); i += step) {
      const at::Tensor& count = routers_.at(names[i]).count;
      std::vector<double> loads = to_vector(100.0 * count / count.sum().clamp_min(1.0));
      std::ranges::sort(loads, std::greater<>());
      Json points = Json::array();
      for (std::size_t x = 0; x < loads.size(); ++x) {
        points.push_back(draw::numbers({static_cast<double>(x + 1), loads[x]}));
      }
      lines.push_back({{"name", layer_name(names[i])}, {"points", std::move(points)}, {"style", i / step}});
    }
    return {.caption = kind + ": load by expert",
            .remark = "per cent of a layer's routed tokens, experts in decreasing order of load",
            .blocks = {{{"chart", "lines"},
                        {"title", "load by expert"},
                        {"x_label", "experts by load"},
                        {"lines", std::move(lines)},
                        {"y", "from_zero"}}}};
  }

  // Extracts "encoder.layer3" from "encoder.layer3.attention.select_in".
  static std::string layer_name(const std::string& router) {
    return router.substr(0, router.find('.', router.find("layer")));
  }

  Figure load_map(const std::string& kind, const std::vector<std::string>& names) const {
    std::vector<at::Tensor> rows;
    std::vector<std::string> row_names;
    for (const std::string& name : names) {
      const at::Tensor& count = routers_.at(name).count;
      rows.push_back((count / count.sum(-1, /*keepdim=*/true).clamp_min(1.0)).view({-1}));
      row_names.push_back(layer_name(name));
    }
    return {.caption = kind + ": load of each expert",
            .remark = "share of the tokens routed within its head; one row per layer, experts grouped by head",
            .blocks = Json::array({heat_map_of(
                {.title = "load of each expert", .row_names = row_names, .column_label = "expert"}, at::stack(rows))})};
  }

  // Returns the columns of a routing map: all tokens of a small vocabulary (as of ListOps) in byte order, or the words
  // most specific to each expert.
  std::vector<std::int64_t> items_of(const RouterStatistics& router, const Counts& counts, const TextIndex& texts,
                                     bool all) const {
    std::vector<std::int64_t> items(all ? static_cast<std::size_t>(texts.size()) : 0);
    std::iota(items.begin(), items.end(), 0);
    std::ranges::sort(items, {}, [&](std::int64_t i) { return texts.text(i); });
    const std::int64_t width = router.n_heads * router.n_experts,
                       each = std::max<std::int64_t>(1, kMostColumns / width);
    for (std::int64_t x = 0; !all && x < std::min(width, kMostColumns); ++x) {
      const std::vector<RankedText> ranked = by_information(router, counts, texts, x);
      for (std::int64_t i = 0; i < std::min(each, std::ssize(ranked)); ++i) {
        items.push_back(ranked[static_cast<std::size_t>(i)].index);
      }
    }
    return items;
  }

  // Draws which experts process the occurrences of a token or word, for each router.
  void draw_routing(Findings& found) const {
    const bool all = vocabulary_.tokens().size() <= kMostColumns;
    const TextIndex& texts = all ? vocabulary_.tokens() : vocabulary_.words();
    for (const auto& [name, router] : routers_) {
      const Counts& counts = all ? router.tokens : router.words;
      const at::Tensor table = counts.table(texts.size());
      const std::vector<std::int64_t> items = items_of(router, counts, texts, all);
      if (!table.defined() || items.empty()) {
        continue;
      }
      const at::Tensor heads =
          table.index_select(0, at::tensor(items, at::kLong)).view({-1, router.n_heads, router.n_experts});
      const at::Tensor occurrences = heads.sum(-1, /*keepdim=*/true) / router.index.size(2);
      const at::Tensor shares = (heads / occurrences.clamp_min(1.0)).flatten(1).t();
      found.tensors[name + ".shares"] = shares.contiguous();
      draw::HeatMap map{.title = name, .row_label = "expert, by head"};
      map.column_names = transformed(items, [&](std::int64_t i) { return display_text(texts.text(i)); });
      found.figures.push_back(
          {.caption = name + ": experts of each " + (all ? "token" : "word"),
           .remark = fmt::format("share of a {}'s occurrences{}; experts grouped by head", all ? "token" : "word",
                                 all ? "" : " (the words most specific to each expert)"),
           .blocks = Json::array({heat_map_of(std::move(map), shares, /*full=*/1.0)})});
    }
  }

  // Draws the word tables of MoA, Table 4, one per router.
  void draw_tables(Findings& found) const {
    Json blocks = Json::array();
    for (const auto& [name, router] : routers_) {
      std::vector<std::vector<Json>> rows;
      for (const Json& one : found.metrics.at(name).at("experts")) {
        rows.push_back({fmt::format("{}.{}", one.at("head").get<int>(), one.at("expert").get<int>()),
                        fmt::format("{:.1f}%", 100.0 * one.at("share").get<double>()),
                        fmt::format("{:.2f}", one.at("mean_gate").get<double>()),
                        listed(one.at("words_by_pmi"), "word"), listed(one.at("tokens"), "token")});
      }
      Json table = table_of({"head.expert", "load", "mean gate", "words", "tokens"}, rows);
      blocks.push_back({{"details", name}, {"open", blocks.empty()}, {"blocks", Json::array({std::move(table)})}});
    }
    found.figures.push_back({.caption = "tokens and words of each expert",
                             .remark = fmt::format("words by pointwise mutual information, if routed to the expert at "
                                                   "least {:.0f} times; tokens by frequency",
                                                   kMinCount),
                             .blocks = std::move(blocks),
                             .full_width = true});
  }

  static std::string listed(const Json& list, const char* key) {
    const std::vector<std::string> texts =
        transformed(list, [&](const Json& one) { return display_text(one.at(key).get<std::string>()); });
    return fmt::format("{}", fmt::join(texts, " \u00b7 "));
  }

  config::ModelOptions options_;
  Vocabulary vocabulary_;
  Indices source_;
  std::optional<Indices> target_;
  std::int64_t n_tokens_ = 0;
  std::map<std::string, RouterStatistics> routers_;
};

std::string refuse_without_experts(const config::ModelOptions& options) {
  return options.routes() ? ""
                          : fmt::format("neither its attention (projection \"{}\") nor its MLP has experts",
                                        options.attention.projection.name());
}

const AnalysisRegistration kExperts(
    {.name = "experts",
     .order = 2,
     .about = "Which tokens and words are routed to each expert, and how even the load is.",
     .refusal = refuse_without_experts,
     .make = make_analysis<ExpertsAnalysis>});

}  // namespace
}  // namespace headroom::analyse
