// Mixtures of keys (Transformer-MGK, Table 7, Figures 11 and 12): the mixing coefficients, key matrices and keys of
// each component, and its share of the attention weights. A model with a single key has one component.
#include <algorithm>

#include "analyse.h"
#include "foundation/core/text/format.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "model_runner.h"

namespace headroom::analyse {
namespace {

constexpr std::int64_t kShownKeys = 100;  // tokens shown, as in the paper
constexpr std::int64_t kMixtureSamples = 4;
constexpr double kKeyMap = 200.0;  // width in pixels

class MixtureAnalysis : public Analysis {
 public:
  explicit MixtureAnalysis(const ModelRunner& runner) : options_(runner.options().attention) {}

  std::int64_t samples() const override { return kMixtureSamples; }
  bool wants(std::string_view name, const InputBatch& input) const override {
    const std::string_view value = value_of(name);
    return (has_shares() && (value == "responsibilities" || value == "probs")) ||
           (input.sample_index == 0 && component_of(value) >= 0 && component_of(value) < options_.key_projections());
  }
  void observe_value(std::string_view name, const at::Tensor& value, const InputBatch& /*input*/) override {
    const std::string layer = layer_of(name);
    if (value_of(name) == "probs") {
      weights_ = value[0].to(at::kDouble);  // [H, T, S], 0 for masked keys
      return;
    }
    if (value_of(name) == "responsibilities") {
      add_to(component_sums_[layer],
             (value[0].to(at::kDouble) * weights_).sum({2, 3}).to(at::kCPU));  // of [R, H, T, S]
      add_to(weight_sums_[layer], weights_.sum({1, 2}).to(at::kCPU));
      return;
    }
    const auto r = static_cast<std::size_t>(component_of(value_of(name)));
    std::vector<at::Tensor>& keys = keys_[layer];
    keys.resize(std::max(keys.size(), r + 1));
    keys[r] = value[0].narrow(1, 0, std::min(value.size(2), kShownKeys)).to(at::kCPU, at::kFloat);
  }

  Findings finish(const ModelRunner& runner) override {
    Findings found;
    double cosines = 0.0;
    for (const AttentionLayer& layer : runner.attention_layers()) {
      Json& metrics = found.metrics[layer.name] = Json::object();
      const at::Tensor prior = prior_of(runner, layer.name);
      if (prior.defined()) {
        found.tensors[layer.name + ".prior"] = prior;
        for (std::int64_t r = 0; r < prior.size(0); ++r) {
          metrics["prior"].push_back(to_vector(prior[r]));
        }
      }
      if (const auto at = component_sums_.find(layer.name); at != component_sums_.end()) {
        const at::Tensor share = at->second / weight_sums_.at(layer.name);  // [R, H]
        found.tensors[layer.name + ".responsibility"] = share;
        for (std::int64_t r = 0; r < share.size(0); ++r) {
          metrics["responsibility"].push_back(to_vector(share[r]));
        }
      }
      cosines += compare_keys(runner, layer.name, metrics, found);
      draw_keys(runner, layer.name, found);
    }
    draw_priors(runner, found);
    const auto n = static_cast<double>(runner.attention_layers().size());
    found.summary = options_.key_components() == 1
                        ? "one key per position: its matrices and keys"
                        : fmt::format("{} components; mean cosine similarity between keys of the first two: {:.3f}",
                                      options_.key_components(), cosines / n);
    return found;
  }

 private:
  // Linear attention sums the keys of all components.
  bool has_shares() const { return options_.score->has_scores() && options_.key_components() > 1; }

  // Returns 0 for "k", 1 for "k2", and so on; -1 for values other than keys.
  static std::int64_t component_of(std::string_view value) {
    if (value == "k") {
      return 0;
    }
    const std::optional<std::int64_t> number = value.starts_with('k') ? whole_number(value.substr(1)) : std::nullopt;
    return number ? *number - 1 : -1;
  }

  // Returns [R, heads]; undefined without a prior. A prior shared by all heads is repeated; a per-position prior is
  // averaged.
  at::Tensor prior_of(const ModelRunner& runner, const std::string& layer) const {
    if (options_.key_components() == 1 || !options_.of<config::MixtureOptions>().has_prior()) {
      return {};
    }
    const std::int64_t heads = options_.computed_kv_heads(), r = options_.key_components();
    if (options_.of<config::MixtureOptions>().prior_update == config::PriorUpdate::none) {
      return at::full({r, heads}, 1.0 / static_cast<double>(r));
    }
    at::Tensor table = runner.parameter(layer + ".prior").to(at::kCPU, at::kFloat);
    if (options_.of<config::MixtureOptions>().prior_update ==
        config::PriorUpdate::soft_e) {  // all but the last are stored; they sum to 1
      table = at::cat({table, 1.0 - table.sum(0, /*keepdim=*/true)}).clamp_min(0.0);
    } else if (options_.of<config::MixtureOptions>().prior_clamp) {
      table = table.clamp(0.0, 1.0);
    }
    return table.dim() == 1   ? table.unsqueeze(1).expand({r, heads}).contiguous()
           : table.dim() == 3 ? table.mean(2)
                              : table;
  }

  // Returns the keys of the first sample, [R, G, n, e]; undefined if none were recorded. Shifted keys are computed
  // here.
  at::Tensor keys_of(const ModelRunner& runner, const std::string& layer) const {
    const auto at = keys_.find(layer);
    if (at == keys_.end()) {
      return {};
    }
    if (options_.of<config::MixtureOptions>().keys != config::Keys::shifted) {
      return at::stack(at->second);
    }
    const at::Tensor shift = runner.parameter(layer + ".shift").to(at::kCPU, at::kFloat).unsqueeze(2);
    return at->second[0].unsqueeze(0) - shift;
  }

  // Returns the mean cosine similarity between the keys of the first two components.
  double compare_keys(const ModelRunner& runner, const std::string& layer, Json& metrics, Findings& found) const {
    const at::Tensor keys = keys_of(runner, layer);
    if (!keys.defined()) {
      return 0.0;
    }
    found.tensors[layer + ".keys"] = keys;
    if (keys.size(0) < 2) {
      return 0.0;
    }
    const at::Tensor cosine = at::cosine_similarity(keys[0], keys[1], -1).mean(-1);
    metrics["distance"] = to_vector((keys[0] - keys[1]).norm(2, at::IntArrayRef{-1}).mean(-1));
    metrics["cosine"] = to_vector(cosine);
    return cosine.mean().item<double>();
  }

  // Returns the key matrices of a component, [heads, d, e]; undefined for experts.
  static at::Tensor key_matrices(const ModelRunner& runner, const std::string& layer, std::int64_t r,
                                 const config::AttentionOptions& o) {
    at::Tensor w = runner.parameter(layer + ".w_k").to(at::kCPU, at::kFloat);
    if (o.has_experts('k')) {
      return {};
    }
    w = o.key_projections() > 1 ? w[r] : w;
    w = w.dim() == 4 ? w.flatten(1, 2) : w;  // the two keys of a differential head
    return w.dim() == 2 ? w.unsqueeze(0) : w.transpose(0, 1);
  }

  void draw_keys(const ModelRunner& runner, const std::string& layer, Findings& found) const {
    Json maps = Json::array();
    const at::Tensor keys = keys_of(runner, layer);
    const auto draw_one = [&](const std::string& name, const at::Tensor& values, const char* down) {
      maps.push_back(
          heat_map_of({.title = name, .row_label = down, .column_label = "channel", .width = kKeyMap}, values));
    };
    for (std::int64_t r = 0; r < options_.key_components(); ++r) {
      if (r < options_.key_projections()) {
        const at::Tensor matrices = key_matrices(runner, layer, r, options_);
        for (std::int64_t h = 0; matrices.defined() && h < matrices.size(0); ++h) {
          draw_one(fmt::format("W_K{} of head {}", r + 1, h), matrices[h], "input");
        }
      }
      for (std::int64_t h = 0; keys.defined() && h < keys.size(1); ++h) {
        draw_one(fmt::format("keys {} of head {}", r + 1, h), keys[r][h], "token");
      }
    }
    found.figures.push_back(
        {.caption = layer + ": key matrices and keys",
         .remark = fmt::format(
             "by component and head; keys of the first {} tokens; one colour for positive values, one for negative",
             kShownKeys),
         .blocks = {{{"maps", std::move(maps)}}},
         .full_width = true});
  }

  // Draws the mixing coefficients of Transformer-MGK, Table 7.
  void draw_priors(const ModelRunner& runner, Findings& found) const {
    std::vector<std::vector<Json>> rows;
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const Json& metrics = found.metrics.at(layer.name);
      // Query heads that share a key head also share its prior.
      const std::int64_t key_heads = options_.computed_kv_heads();
      const std::int64_t heads = metrics.contains("responsibility") ? options_.computed_heads() : key_heads;
      for (std::int64_t h = 0; h < heads; ++h) {
        std::vector<Json> row = {fmt::format("{} head {}", layer_of(layer.name), h)};
        for (const auto& [of, head] : {std::pair("prior", h * key_heads / heads), std::pair("responsibility", h)}) {
          for (std::int64_t r = 0; metrics.contains(of) && r < options_.key_components(); ++r) {
            row.push_back(fmt::format(
                "{:.3f}", metrics[of][static_cast<std::size_t>(r)][static_cast<std::size_t>(head)].get<double>()));
          }
        }
        rows.push_back(std::move(row));
      }
    }
    std::vector<std::string> head = {"head"};
    const Json& first = found.metrics.begin().value();
    for (const auto& [of, name] : {std::pair("prior", "\u03c0"), std::pair("responsibility", "share of the weights")}) {
      for (std::int64_t r = 0; first.contains(of) && r < options_.key_components(); ++r) {
        head.push_back(fmt::format("{} {}", name, r + 1));
      }
    }
    if (head.size() > 1) {
      found.figures.insert(
          found.figures.begin(),
          {.caption = "mixing coefficients",
           .remark = "\u03c0 as learned, and each component's share of the attention weights on the text",
           .blocks = Json::array({table_of(head, rows)}),
           .full_width = true});
    }
  }

  config::AttentionOptions options_;
  at::Tensor weights_;  // of the current layer, until its responsibilities are observed
  // Sums over all pairs, per layer: each component's share of the weights [R, H], and the weights [H].
  std::map<std::string, at::Tensor> component_sums_, weight_sums_;
  std::map<std::string, std::vector<at::Tensor>> keys_;  // per layer and component, [G, n, e]
};

const AnalysisRegistration kMixture(
    {.name = "mixture",
     .order = 7,
     .about = "The components of mixtures of keys: coefficients, key matrices and keys.",
     .refusal = refuse_without_head_matrices,
     .make = make_analysis<MixtureAnalysis>,
     .by_default = [](const config::ModelOptions& options) { return options.attention.key_components() > 1; }});

}  // namespace
}  // namespace headroom::analyse
