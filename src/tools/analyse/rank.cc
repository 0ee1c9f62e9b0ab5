// The rank of attention matrices: the number of singular values of at least 1e-6 (Transformer-MGK, section 3.2,
// Figures 2 and 6).
#include <algorithm>

#include "analyse.h"
#include "measures.h"
#include "model_runner.h"

namespace headroom::analyse {

at::Tensor matrix_ranks(const at::Tensor& matrices, double threshold) {
  return at::linalg_svdvals(matrices.to(at::kDouble)).ge(threshold).sum(-1);
}

namespace {

constexpr double kThreshold = 1e-6;
constexpr std::int64_t kSamples = 8;
constexpr std::int64_t kBins = 24;  // of the histogram

class RankAnalysis : public Analysis {
 public:
  explicit RankAnalysis(const ModelRunner& runner)
      : layers_(runner.attention_layers()), options_(runner.options().attention) {}

  std::int64_t samples() const override { return kSamples; }
  bool wants(std::string_view name, const InputBatch& /*input*/) const override {
    return value_of(name) == weights_value(options_);
  }
  void observe_value(std::string_view name, const at::Tensor& value, const InputBatch& /*input*/) override {
    LayerRanks& layer = by_layer_[layer_of(name)];
    const std::int64_t full = std::min(value.size(2), value.size(3));  // smaller if the last sample is shorter
    layer.ranks.push_back(matrix_ranks(attention_matrices(value[0], options_), kThreshold).to(at::kCPU));
    layer.full = std::max(layer.full, full);
    layer.shares.push_back(layer.ranks.back().to(at::kDouble) / full);
  }

  Findings finish(const ModelRunner& /*runner*/) override {
    Findings found;
    found.metrics["threshold"] = kThreshold;
    double sum = 0.0, n = 0.0;
    std::int64_t matrices = 0;  // of a layer
    std::vector<at::Tensor> rows;
    std::vector<std::string> names;
    for (const AttentionLayer& attention : layers_) {
      const auto at = by_layer_.find(attention.name);
      if (at == by_layer_.end()) {
        continue;
      }
      const LayerRanks& layer = at->second;
      const at::Tensor all = at::stack(layer.ranks), wide = all.to(at::kDouble);  // [samples, H]
      found.tensors[attention.name] = all;
      matrices = all.numel();
      found.metrics["layers"][attention.name] = {{"full", layer.full},
                                                 {"matrices", matrices},
                                                 {"mean", wide.mean().item<double>()},
                                                 {"least", all.min().item<std::int64_t>()},
                                                 {"largest", all.max().item<std::int64_t>()},
                                                 {"mean_by_head", to_vector(wide.mean(0))}};
      sum += at::stack(layer.shares).mean().item<double>();
      n += 1.0;
      rows.push_back(distribution(at::stack(layer.shares)));
      names.push_back(layer_of(attention.name));
    }
    if (n == 0.0) {
      return found;
    }
    found.metrics["mean_share"] = sum / n;
    found.figures.push_back(
        {.caption = "rank of attention matrices",
         .remark = fmt::format("one row per layer; the shade is the share of its {} matrices with "
                               "that rank, counting singular values of at least {}",
                               matrices, kThreshold),
         .blocks = Json::array({heat_map_of({.title = "distribution of ranks by layer",
                                             .row_names = names,
                                             .column_label = "rank as a share of full rank, 0 to 1"},
                                            at::stack(rows))})});
    found.summary = fmt::format("mean rank of attention matrices: {:.1f}% of full rank, {} matrices a layer",
                                100.0 * sum / n, matrices);
    return found;
  }

 private:
  struct LayerRanks {
    std::vector<at::Tensor> ranks, shares;  // [H] per sample; shares: rank / full rank
    std::int64_t full = 0;                  // full rank
  };

  // Returns a histogram of rank / full rank, [kBins], normalised to sum to 1.
  static at::Tensor distribution(const at::Tensor& shares) {
    const at::Tensor bins = shares.mul(kBins).floor().clamp(0, kBins - 1).to(at::kLong).reshape({-1});
    return at::bincount(bins, {}, kBins).to(at::kDouble) / static_cast<double>(bins.numel());
  }

  std::vector<AttentionLayer> layers_;
  config::AttentionOptions options_;
  std::map<std::string, LayerRanks, std::less<>> by_layer_;
};

const AnalysisRegistration kRank({.name = "rank",
                                  .order = 4,
                                  .about = "The rank of the attention matrix of each head.",
                                  .refusal = applies_always,
                                  .make = make_analysis<RankAnalysis>});

}  // namespace
}  // namespace headroom::analyse
