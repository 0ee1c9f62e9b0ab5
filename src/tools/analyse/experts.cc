// What each expert is for: how often it is chosen (MoA, Figures 3 and 4), by which tokens and kinds of token, and for
// which words it is telling (MoA, Table 4): by pointwise mutual information, log2 of p(word, expert) / (p(word)
// p(expert)), which frequent words do not win.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "analysis.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "foundation/draw/text.h"
#include "headroom/config/attention_part.h"
#include "layers.h"
#include "vocabulary.h"

namespace headroom::inspect {
namespace {

constexpr std::int64_t kListed = 10;  // tokens and words of an expert
constexpr double kLeastCount = 5.0;   // a word that comes less often tells nothing
constexpr std::int64_t kFirstRows = 1024;

// How often each of a growing number of things chose each of X experts.
class Counts {
 public:
  // things: [n], -1 is none; experts: [n, m] with numbers below `width`.
  void add(const at::Tensor& things, const at::Tensor& experts, std::int64_t width) {
    const at::Tensor known = things.ge(0).nonzero().squeeze(1);
    if (known.numel() == 0) {
      return;
    }
    const at::Tensor rows = things.index_select(0, known);
    const std::int64_t needed = rows.max().item<std::int64_t>() + 1;
    if (!counts_.defined() || counts_.size(0) < needed) {
      std::int64_t room = std::max(kFirstRows, counts_.defined() ? 2 * counts_.size(0) : 0);
      room = std::max(room, needed);
      const at::Tensor more = at::zeros({room, width}, at::kInt);
      if (counts_.defined()) {
        more.narrow(0, 0, counts_.size(0)).copy_(counts_);
      }
      counts_ = more;
    }
    const at::Tensor places = (rows.unsqueeze(1) * width + experts.index_select(0, known)).reshape({-1});
    counts_.view({-1}).scatter_add_(0, places, at::ones(places.sizes(), at::kInt));
  }
  // [n, width], double; undefined where nothing was counted.
  at::Tensor table(std::int64_t n) const {
    return counts_.defined() ? counts_.narrow(0, 0, std::min(n, counts_.size(0))).to(at::kDouble) : at::Tensor();
  }

 private:
  at::Tensor counts_;
};

// One selection of one layer: "layer3.attention.select_in".
struct Site {
  std::int64_t n_heads = 1, n_experts = 1;
  at::Tensor chosen, weight;  // [H, E]: choices, and the sum of their gates
  at::Tensor last;            // [n, H, K], waits for its gates
  std::int64_t readings = 0;  // of it in the reading under way
  Counts tokens, words, kinds;
};

struct Listed {
  std::string text;
  double value = 0.0, count = 0.0;
};

Json to_json(const std::vector<Listed>& all, const char* thing, const char* value) {
  Json list = Json::array();
  for (const Listed& one : all) {
    list.push_back({{thing, one.text}, {value, one.value}, {"count", one.count}});
  }
  return list;
}

class Experts : public Analysis {
 public:
  explicit Experts(const Reader& reader) : options_(reader.options()), vocabulary_(reader) {}

  bool reads_all() const override { return true; }
  bool wants(std::string_view name, const Reading& /*reading*/) const override {
    const std::string_view value = value_of(name);
    if (name.find(".select") == std::string_view::npos || (value != "index" && value != "weight")) {
      return false;
    }
    const bool same = options_.attention.shared_selection && name.find(".cross.") == std::string_view::npos &&
                      name.find(".select_out.") != std::string_view::npos;
    return !same;  // one choice serves both sides: counted once
  }
  void begin(const Reading& reading) override {
    source_ = tensors_of(vocabulary_.number(reading.tokens, Side::source));
    target_ = reading.target.defined() ? std::optional(tensors_of(vocabulary_.number(reading.target, Side::target)))
                                       : std::nullopt;
    for (auto& [name, site] : sites_) {
      site.readings = 0;
    }
    n_tokens_ += reading.tokens.numel() + (reading.target.defined() ? reading.target.numel() : 0);
  }

  void see(std::string_view name, const at::Tensor& value, const Reading& reading) override {
    Site& site = site_of(name, value);
    site.readings += value_of(name) == "index" ? 1 : 0;
    const Numbers& read = numbers_of_site(name, site);
    const std::int64_t b = reading.tokens.size(0), n = read.token.numel();
    // Of sources only this call's tokens: memory was counted before.
    const at::Tensor own = value.view({b, -1, value.size(1), value.size(2)})
                               .narrow(1, value.size(0) / b - n / b, n / b)
                               .flatten(0, 1)
                               .to(at::kCPU);
    if (value_of(name) == "index") {
      site.last = own;
      return;
    }
    const std::int64_t width = site.n_heads * site.n_experts;
    const at::Tensor bank = (site.last + at::arange(site.n_heads, at::kLong).view({1, -1, 1}) * site.n_experts);
    const at::Tensor flat = bank.flatten(1);  // [n, H K]
    site.chosen.view({-1}).add_(at::bincount(flat.reshape({-1}), {}, width));
    site.weight.view({-1}).scatter_add_(0, bank.reshape({-1}), own.reshape({-1}).to(at::kDouble));
    site.tokens.add(read.token, flat, width);
    site.words.add(read.word, flat, width);
    site.kinds.add(read.kind, flat, width);
  }

  Findings finish(const Reader& /*reader*/) override {
    Findings found;
    double least_entropy = 1.0;
    std::int64_t unused = 0;
    for (const auto& [name, site] : sites_) {
      const at::Tensor load = site.chosen / site.chosen.sum(-1, /*keepdim=*/true).clamp_min(1.0);
      found.tensors[name + ".count"] = site.chosen.to(at::kLong);
      found.figures[name] = figures_of(site, load);
      for (const double entropy : found.figures[name].at("entropy").get<std::vector<double>>()) {
        least_entropy = std::min(least_entropy, entropy);
      }
      unused += found.figures[name].at("unused").get<std::int64_t>();
    }
    draw_loads(found);
    draw_tables(found);
    found.summary = fmt::format(
        "{} choices over {} tokens; entropy of the load at least {:.3f} of its maximum; experts never chosen: {}",
        sites_.size(), n_tokens_, least_entropy, unused);
    return found;
  }

 private:
  struct Numbers {
    at::Tensor token, word, kind;
  };
  static Numbers tensors_of(const Vocabulary::Numbers& numbers) {
    return {at::tensor(numbers.token, at::kLong), at::tensor(numbers.word, at::kLong),
            at::tensor(numbers.kind, at::kLong)};
  }

  Site& site_of(std::string_view name, const at::Tensor& value) {
    Site& site = sites_[layer_of(name)];
    if (!site.chosen.defined()) {
      const config::AttentionOptions& o = options_.attention;
      site.n_heads = value.size(1);
      site.n_experts = name.find(".ffn.") != std::string_view::npos      ? options_.mlp.n_experts
                       : name.find(".select.") != std::string_view::npos ? o.projection->all_heads(o)
                                                                         : o.n_experts;
      site.chosen = at::zeros({site.n_heads, site.n_experts}, at::kDouble);
      site.weight = at::zeros_like(site.chosen);
    }
    return site;
  }

  // Which of the two sequences chose. A classifier of pairs reads one after the other.
  const Numbers& numbers_of_site(std::string_view name, const Site& site) const {
    if (options_.kind == config::ModelKind::classifier) {
      return site.readings > 1 && target_ ? *target_ : source_;
    }
    const bool source =
        !target_ || name.starts_with("encoder.") ||
        (name.find(".cross.") != std::string_view::npos && name.find(".select_in.") != std::string_view::npos);
    return source ? source_ : *target_;
  }

  Json figures_of(const Site& site, const at::Tensor& load) const {
    Json figures = Json::object();
    // Of log E: 1 is an even load.
    const double even = std::log(static_cast<double>(std::max<std::int64_t>(site.n_experts, 2)));
    figures["entropy"] = numbers_of(at::special_entr(load).sum(-1) / even);
    figures["unused"] = site.chosen.eq(0.0).sum().item<std::int64_t>();
    figures["most_used"] = named(load.argmax().item<std::int64_t>(), site, load);
    figures["least_used"] = named(load.argmin().item<std::int64_t>(), site, load);
    const at::Tensor gates = site.weight / site.chosen.clamp_min(1.0);
    const std::vector<double> shares = numbers_of(load), mean_gates = numbers_of(gates);
    const at::Tensor kinds = site.kinds.table(std::ssize(kTokenKinds));
    Json experts = Json::array();
    for (std::int64_t x = 0; x < site.n_heads * site.n_experts; ++x) {
      const auto at = static_cast<std::size_t>(x);
      Json one = {{"head", x / site.n_experts},
                  {"expert", x % site.n_experts},
                  {"share", shares[at]},
                  {"mean_gate", mean_gates[at]}};
      one["tokens"] = to_json(most_frequent(site, x), "token", "share");
      one["tokens_by_pmi"] = to_json(by_information(site, site.tokens, vocabulary_.tokens(), x), "token", "pmi");
      one["words_by_pmi"] = to_json(by_information(site, site.words, vocabulary_.words(), x), "word", "pmi");
      for (std::int64_t kind = 0; kinds.defined() && kind < kinds.size(0); ++kind) {
        const double all = kinds.select(1, x).sum().item<double>();
        one["kinds"][std::string(kTokenKinds[static_cast<std::size_t>(kind)])] =
            all > 0.0 ? kinds[kind][x].item<double>() / all : 0.0;
      }
      experts.push_back(std::move(one));
    }
    figures["experts"] = std::move(experts);
    return figures;
  }

  static Json named(std::int64_t x, const Site& site, const at::Tensor& load) {
    return {{"head", x / site.n_experts}, {"expert", x % site.n_experts}, {"share", load.view({-1})[x].item<double>()}};
  }

  // The first `kListed` by `value` [n], largest first, where `counts` [n] allow; of equals the more frequent.
  static std::vector<Listed> largest(const at::Tensor& value, const at::Tensor& counts, const Numbering& texts,
                                     double least) {
    constexpr double kHardly = 1e-9;
    const at::Tensor ranked = (value + kHardly * counts.clamp_min(1.0).log()).masked_fill(counts.lt(least), -HUGE_VAL);
    const auto [top, index] = ranked.topk(std::min(kListed, ranked.size(0)));
    std::vector<Listed> all;
    for (std::int64_t i = 0; i < top.size(0) && std::isfinite(top[i].item<double>()); ++i) {
      const auto at = index[i].item<std::int64_t>();
      all.push_back({texts.text(at), value[at].item<double>(), counts[at].item<double>()});
    }
    return all;
  }

  // Tokens of an expert by how often they choose it.
  std::vector<Listed> most_frequent(const Site& site, std::int64_t x) const {
    const at::Tensor table = site.tokens.table(vocabulary_.tokens().size());
    if (!table.defined()) {
      return {};
    }
    const at::Tensor counts = table.select(1, x);
    return largest(counts / counts.sum().clamp_min(1.0), counts, vocabulary_.tokens(), 1.0);
  }

  // Things by their pointwise mutual information with the expert, among the experts of its head.
  std::vector<Listed> by_information(const Site& site, const Counts& of, const Numbering& texts, std::int64_t x) const {
    const at::Tensor table = of.table(texts.size());
    if (!table.defined()) {
      return {};
    }
    const at::Tensor head = table.narrow(1, x / site.n_experts * site.n_experts, site.n_experts);
    const at::Tensor counts = table.select(1, x), by_thing = head.sum(1);
    const double all = head.sum().item<double>(), of_expert = counts.sum().item<double>();
    if (all == 0.0 || of_expert == 0.0) {
      return {};
    }
    const at::Tensor information = (counts * all / (by_thing.clamp_min(1.0) * of_expert)).log2();
    return largest(information, counts, texts, kLeastCount);
  }

  // Sites of one side: "select_in", "attention.select", "ffn.select".
  static std::string side_of(const std::string& name) {
    const std::size_t select = name.rfind('.'), part = name.rfind('.', select - 1);
    return name.substr(part + 1);
  }

  void draw_loads(Findings& found) const {
    std::map<std::string, std::vector<std::string>> sides;
    for (const auto& [name, site] : sites_) {
      sides[side_of(name)].push_back(name);
    }
    for (const auto& [side, names] : sides) {
      found.pictures.push_back(load_curves(side, names));
      found.pictures.push_back(load_map(side, names));
    }
  }

  // MoA, Figures 3 and 4: experts in the order of their loads.
  Picture load_curves(const std::string& side, const std::vector<std::string>& names) const {
    draw::LineChart chart{.title = "load by expert", .x_label = "experts in the order of their load", .lines = {}};
    chart.y = draw::YScale::from_zero;
    const std::size_t step = (names.size() + draw::kStyles - 1) / draw::kStyles;
    for (std::size_t i = 0; i < names.size(); i += step) {
      const Site& site = sites_.at(names[i]);
      std::vector<double> loads = numbers_of(100.0 * site.chosen / site.chosen.sum().clamp_min(1.0));
      std::sort(loads.begin(), loads.end(), std::greater<>());
      draw::Line line{.name = names[i].substr(0, names[i].find('.', names[i].find("layer"))), .points = {}, .band = {}};
      line.style = i / step;
      for (std::size_t x = 0; x < loads.size(); ++x) {
        line.points.push_back({static_cast<double>(x + 1), loads[x]});
      }
      chart.lines.push_back(std::move(line));
    }
    return {.caption = side + ": load by expert",
            .remark = "per cent of a layer's choices, experts in the order of their load",
            .markup = draw::line_chart(chart)};
  }

  Picture load_map(const std::string& side, const std::vector<std::string>& names) const {
    std::vector<at::Tensor> rows;
    std::vector<std::string> row_names;
    for (const std::string& name : names) {
      const at::Tensor& chosen = sites_.at(name).chosen;
      rows.push_back((chosen / chosen.sum(-1, /*keepdim=*/true).clamp_min(1.0)).view({-1}));
      row_names.push_back(name.substr(0, name.find('.', name.find("layer"))));
    }
    const at::Tensor all = at::stack(rows);
    return {.caption = side + ": load of each expert",
            .remark = "share of its head's choices; layers below each other, experts head by head",
            .markup = draw::heat_map({.title = "load of each expert",
                                      .cells = cells_of(all),
                                      .shade = {.full = all.max().item<double>()},
                                      .row_names = row_names,
                                      .column_label = "expert"})};
  }

  // MoA, Table 4, of each choice.
  void draw_tables(Findings& found) const {
    std::string markup;
    for (const auto& [name, site] : sites_) {
      std::vector<std::vector<std::string>> rows;
      for (const Json& one : found.figures.at(name).at("experts")) {
        rows.push_back({fmt::format("{}.{}", one.at("head").get<int>(), one.at("expert").get<int>()),
                        fmt::format("{:.1f}%", 100.0 * one.at("share").get<double>()),
                        fmt::format("{:.2f}", one.at("mean_gate").get<double>()), main_kind(one),
                        listed(one.at("words_by_pmi"), "word"), listed(one.at("tokens"), "token")});
      }
      markup += fmt::format("<details{}><summary>{}</summary>{}</details>", markup.empty() ? " open" : "", name,
                            html_table({"head.expert", "load", "mean gate", "kind", "words", "tokens"}, rows));
    }
    found.pictures.push_back(
        {.caption = "what each expert is for",
         .remark = fmt::format("words by pointwise mutual information, of those that chose the expert {:.0f} times or "
                               "more; tokens by how often they chose it",
                               kLeastCount),
         .markup = markup,
         .whole = true});
  }

  static std::string main_kind(const Json& expert) {
    std::string text;
    double most = 0.0;
    if (expert.contains("kinds")) {
      for (const auto& [kind, share] : expert.at("kinds").items()) {
        if (share.get<double>() > most) {
          most = share.get<double>();
          text = fmt::format("{} {:.0f}%", kind, 100.0 * most);
        }
      }
    }
    return text;
  }

  static std::string listed(const Json& list, const char* thing) {
    std::vector<std::string> texts;
    for (const Json& one : list) {
      texts.push_back(draw::escape(shown(one.at(thing).get<std::string>())));
    }
    return fmt::format("{}", fmt::join(texts, " \u00b7 "));
  }

  config::ModelOptions options_;
  Vocabulary vocabulary_;
  Numbers source_;
  std::optional<Numbers> target_;
  std::int64_t n_tokens_ = 0;
  std::map<std::string, Site> sites_;
};

std::string refuse_without_experts(const config::ModelOptions& options) {
  return options.routes() ? ""
                          : fmt::format("neither its attention (projection \"{}\") nor its MLP has experts",
                                        options.attention.projection.name());
}

const Registration kExperts({.name = "experts",
                             .place = 2,
                             .about = "Which tokens and words choose which expert, and how evenly they are loaded.",
                             .refusal = refuse_without_experts,
                             .make = [](const Reader& reader) -> std::unique_ptr<Analysis> {
                               return std::make_unique<Experts>(reader);
                             }});

}  // namespace
}  // namespace headroom::inspect
