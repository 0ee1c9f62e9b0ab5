// Keys that are mixtures (Transformer-MGK, Table 7 and Figures 11 and 12): the coefficients of the components, their
// key matrices and keys, and the share of the attention weights that falls on each.
#include <algorithm>

#include "analysis.h"
#include "headroom/config/attention_part.h"
#include "layers.h"

namespace headroom::inspect {
namespace {

constexpr std::int64_t kShownKeys = 100;  // tokens, as in the paper
constexpr std::int64_t kMixtureSamples = 4;
constexpr double kKeyMap = 200.0;

class Mixture : public Analysis {
 public:
  explicit Mixture(const Reader& reader) : options_(reader.options().attention) {}

  std::int64_t samples() const override { return kMixtureSamples; }
  bool wants(std::string_view name, const Reading& reading) const override {
    const std::string_view value = value_of(name);
    return (has_shares() && (value == "responsibilities" || value == "probs")) ||
           (reading.row == 0 && key_number(value) >= 0);
  }
  void see(std::string_view name, const at::Tensor& value, const Reading& /*reading*/) override {
    const std::string layer = layer_of(name);
    if (value_of(name) == "probs") {
      weights_ = value[0].to(at::kDouble);  // [H, T, S], 0 where a query does not see a key
      return;
    }
    if (value_of(name) == "responsibilities") {
      add(taken_[layer], (value[0].to(at::kDouble) * weights_).sum({2, 3}).to(at::kCPU));  // of [R, H, T, S]
      add(whole_[layer], weights_.sum({1, 2}).to(at::kCPU));
      return;
    }
    const auto r = static_cast<std::size_t>(key_number(value_of(name)));
    std::vector<at::Tensor>& keys = keys_[layer];
    keys.resize(std::max(keys.size(), r + 1));
    keys[r] = value[0].narrow(1, 0, std::min(value.size(2), kShownKeys)).to(at::kCPU, at::kFloat);
  }

  Findings finish(const Reader& reader) override {
    Findings found;
    double apart = 0.0;
    for (const AttentionLayer& layer : reader.attention_layers()) {
      Json& figures = found.figures[layer.name];
      const at::Tensor prior = prior_of(reader, layer.name);
      if (prior.defined()) {
        found.tensors[layer.name + ".prior"] = prior;
        for (std::int64_t r = 0; r < prior.size(0); ++r) {
          figures["prior"].push_back(numbers_of(prior[r]));
        }
      }
      if (const auto at = taken_.find(layer.name); at != taken_.end()) {
        const at::Tensor share = at->second / whole_.at(layer.name);  // [R, H]
        found.tensors[layer.name + ".responsibility"] = share;
        for (std::int64_t r = 0; r < share.size(0); ++r) {
          figures["responsibility"].push_back(numbers_of(share[r]));
        }
      }
      apart += compare_keys(reader, layer.name, figures, found);
      draw_keys(reader, layer.name, found);
    }
    draw_priors(reader, found);
    const auto n = static_cast<double>(reader.attention_layers().size());
    found.summary = fmt::format("{} components; keys of the first two have a mean cosine of {:.3f}",
                                options_.key_components(), apart / n);
    return found;
  }

 private:
  bool has_shares() const { return options_.score->has_scores(); }  // linear attention adds up its keys

  static void add(at::Tensor& sum, const at::Tensor& more) { sum = sum.defined() ? sum + more : more; }

  // 0 of "k", 1 of "k2", ...; -1: no key.
  static std::int64_t key_number(std::string_view value) {
    if (value == "k") {
      return 0;
    }
    const bool numbered = value.size() == 2 && value[0] == 'k' && value[1] >= '2' && value[1] <= '9';
    return numbered ? value[1] - '1' : -1;
  }

  // [R, heads]: of a layer's prior one for all heads, of one by position the mean; undefined without a prior.
  at::Tensor prior_of(const Reader& reader, const std::string& layer) const {
    if (!options_.has_prior()) {
      return {};
    }
    const std::int64_t heads = options_.computed_kv_heads(), r = options_.key_components();
    if (options_.prior_update == config::PriorUpdate::none) {
      return at::full({r, heads}, 1.0 / static_cast<double>(r));
    }
    at::Tensor table = reader.parameter(layer + ".prior").to(at::kCPU, at::kFloat);
    if (options_.prior_update == config::PriorUpdate::soft_e) {  // the last is what is left of 1
      table = at::cat({table, 1.0 - table.sum(0, /*keepdim=*/true)}).clamp_min(0.0);
    } else if (options_.prior_clamp) {
      table = table.clamp(0.0, 1.0);
    }
    return table.dim() == 1   ? table.unsqueeze(1).expand({r, heads}).contiguous()
           : table.dim() == 3 ? table.mean(2)
                              : table;
  }

  // Keys of all components [R, G, n, e] of the first sample; shifted ones are made here.
  at::Tensor keys_of(const Reader& reader, const std::string& layer) const {
    const auto at = keys_.find(layer);
    if (at == keys_.end()) {
      return {};
    }
    if (options_.keys != config::Keys::shifted) {
      return at::stack(at->second);
    }
    const at::Tensor shift = reader.parameter(layer + ".shift").to(at::kCPU, at::kFloat).unsqueeze(2);
    return at->second[0].unsqueeze(0) - shift;
  }

  double compare_keys(const Reader& reader, const std::string& layer, Json& figures, Findings& found) const {
    const at::Tensor keys = keys_of(reader, layer);
    if (!keys.defined() || keys.size(0) < 2) {
      return 0.0;
    }
    found.tensors[layer + ".keys"] = keys;
    const at::Tensor cosine = at::cosine_similarity(keys[0], keys[1], -1).mean(-1);
    figures["distance"] = numbers_of((keys[0] - keys[1]).norm(2, at::IntArrayRef{-1}).mean(-1));
    figures["cosine"] = numbers_of(cosine);
    return cosine.mean().item<double>();
  }

  // The key matrices of a component, [heads, d, e]; undefined where they are banks or one for all components.
  static at::Tensor key_matrices(const Reader& reader, const std::string& layer, std::int64_t r,
                                 const config::AttentionOptions& o) {
    at::Tensor w = reader.parameter(layer + ".w_k").to(at::kCPU, at::kFloat);
    if (o.has_experts('k')) {
      return {};
    }
    w = o.key_projections() > 1 ? w[r] : w;
    return w.dim() == 2 ? w.unsqueeze(0) : w.transpose(0, 1);
  }

  void draw_keys(const Reader& reader, const std::string& layer, Findings& found) const {
    std::string markup = "<div class='maps'>";
    const at::Tensor keys = keys_of(reader, layer);
    const auto draw_one = [&](const std::string& name, const at::Tensor& values, const char* down) {
      markup += fmt::format("<div><p class='name'>{}</p>{}</div>\n", name,
                            draw::heat_map({.title = name,
                                            .cells = cells_of(values),
                                            .shade = {.full = values.abs().max().item<double>()},
                                            .row_label = down,
                                            .column_label = "channel",
                                            .width = kKeyMap}));
    };
    for (std::int64_t r = 0; r < options_.key_components(); ++r) {
      if (r < options_.key_projections()) {
        const at::Tensor matrices = key_matrices(reader, layer, r, options_);
        for (std::int64_t h = 0; matrices.defined() && h < matrices.size(0); ++h) {
          draw_one(fmt::format("W_K{} of head {}", r + 1, h), matrices[h], "input");
        }
      }
      for (std::int64_t h = 0; keys.defined() && h < keys.size(1); ++h) {
        draw_one(fmt::format("keys {} of head {}", r + 1, h), keys[r][h], "token");
      }
    }
    found.pictures.push_back({.caption = layer + ": key matrices and keys",
                              .remark = fmt::format("of each component and head; keys of the first {} tokens; two "
                                                    "colours: above and below 0",
                                                    kShownKeys),
                              .markup = markup + "</div>",
                              .whole = true});
  }

  // Table 7: the coefficients of all layers, heads and components.
  void draw_priors(const Reader& reader, Findings& found) const {
    std::vector<std::vector<std::string>> rows;
    for (const AttentionLayer& layer : reader.attention_layers()) {
      const Json& figures = found.figures.at(layer.name);
      for (std::int64_t h = 0; h < options_.computed_kv_heads(); ++h) {
        std::vector<std::string> row = {fmt::format("{} head {}", layer.name.substr(0, layer.name.rfind('.')), h)};
        for (const char* of : {"prior", "responsibility"}) {
          for (std::int64_t r = 0; figures.contains(of) && r < options_.key_components(); ++r) {
            row.push_back(fmt::format(
                "{:.3f}", figures[of][static_cast<std::size_t>(r)][static_cast<std::size_t>(h)].get<double>()));
          }
        }
        rows.push_back(std::move(row));
      }
    }
    std::vector<std::string> head = {"head"};
    const Json& first = found.figures.begin().value();
    for (const auto& [of, name] : {std::pair("prior", "\u03c0"), std::pair("responsibility", "share of the weights")}) {
      for (std::int64_t r = 0; first.contains(of) && r < options_.key_components(); ++r) {
        head.push_back(fmt::format("{} {}", name, r + 1));
      }
    }
    if (head.size() > 1) {
      found.pictures.insert(
          found.pictures.begin(),
          {.caption = "mixing coefficients",
           .remark = "\u03c0 as learned, and the share of the text's attention weights that falls on each component",
           .markup = html_table(head, rows),
           .whole = true});
    }
  }

  config::AttentionOptions options_;
  at::Tensor weights_;  // of the layer under way, whose responsibilities come next
  // Sums over the pairs of the text: what each component has of the weights [R, H], and all of them [H].
  std::map<std::string, at::Tensor> taken_, whole_;
  std::map<std::string, std::vector<at::Tensor>> keys_;  // of each component, [G, n, e]
};

std::string refuse_without_mixture(const config::ModelOptions& options) {
  return options.attention.key_components() > 1 ? "" : "its attention has one key at each position";
}

const Registration kMixture({.name = "mixture",
                             .place = 7,
                             .about = "What the keys of a mixture are: coefficients, key matrices, keys.",
                             .refusal = refuse_without_mixture,
                             .make = [](const Reader& reader) -> std::unique_ptr<Analysis> {
                               return std::make_unique<Mixture>(reader);
                             }});

}  // namespace
}  // namespace headroom::inspect
