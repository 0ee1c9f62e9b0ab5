// The rank of attention matrices: how many of their singular values are not below a threshold (Transformer-MGK,
// section 3.2, Figures 2 and 6).
#include "rank.h"

#include <algorithm>

#include "analysis.h"
#include "layers.h"

namespace headroom::inspect {

at::Tensor matrix_ranks(const at::Tensor& matrices, double threshold) {
  return at::linalg_svdvals(matrices.to(at::kDouble)).ge(threshold).sum(-1);
}

namespace {

constexpr double kThreshold = 1e-6;
constexpr std::int64_t kSamples = 8;
constexpr std::int64_t kBins = 24;  // of the distribution

class Rank : public Analysis {
 public:
  explicit Rank(const Reader& reader) : layers_(reader.attention_layers()) {}

  std::int64_t samples() const override { return kSamples; }
  bool wants(std::string_view name, const Reading& /*reading*/) const override {
    return value_of(name) == kFinalWeights;
  }
  void see(std::string_view name, const at::Tensor& value, const Reading& /*reading*/) override {
    Layer& layer = by_layer_[layer_of(name)];
    layer.ranks.push_back(matrix_ranks(value[0], kThreshold).to(at::kCPU));
    // The last sample may be shorter.
    layer.most = std::max({layer.most, std::min(value.size(2), value.size(3))});
    layer.shares.push_back(layer.ranks.back().to(at::kDouble) / std::min(value.size(2), value.size(3)));
  }

  Findings finish(const Reader& /*reader*/) override {
    Findings found;
    found.figures["threshold"] = kThreshold;
    double sum = 0.0, n = 0.0;
    std::vector<at::Tensor> rows;
    std::vector<std::string> names;
    for (const AttentionLayer& place : layers_) {
      const auto at = by_layer_.find(place.name);
      if (at == by_layer_.end()) {
        continue;
      }
      const Layer& layer = at->second;
      const at::Tensor all = at::stack(layer.ranks), wide = all.to(at::kDouble);  // [samples, H]
      found.tensors[place.name] = all;
      found.figures["layers"][place.name] = {{"full", layer.most},
                                             {"mean", wide.mean().item<double>()},
                                             {"least", all.min().item<std::int64_t>()},
                                             {"largest", all.max().item<std::int64_t>()},
                                             {"mean_by_head", numbers_of(wide.mean(0))}};
      sum += at::stack(layer.shares).mean().item<double>();
      n += 1.0;
      rows.push_back(distribution(at::stack(layer.shares)));
      names.push_back(place.name.substr(0, place.name.rfind('.')));
    }
    if (n == 0.0) {
      return found;
    }
    found.figures["mean_share"] = sum / n;
    const at::Tensor shades = at::stack(rows);
    found.pictures.push_back(
        {.caption = "rank of attention matrices",
         .remark = fmt::format("layers below each other; from left to right ranks from 0 to full, shades the share of "
                               "matrices with it; singular values of at least {} count",
                               kThreshold),
         .markup = draw::heat_map({.title = "distribution of ranks by layer",
                                   .cells = cells_of(shades),
                                   .shade = {.full = shades.max().item<double>()},
                                   .row_names = names,
                                   .column_label = "rank, as a share of full rank: 0 to 1"})});
    found.summary = fmt::format("attention matrices have {:.1f}% of full rank on average", 100.0 * sum / n);
    return found;
  }

 private:
  struct Layer {
    std::vector<at::Tensor> ranks, shares;  // of each sample, [H]
    std::int64_t most = 0;                  // full rank
  };

  // Which part of the matrices has which share of full rank.
  static at::Tensor distribution(const at::Tensor& shares) {
    const at::Tensor bins = shares.mul(kBins).floor().clamp(0, kBins - 1).to(at::kLong).reshape({-1});
    return at::bincount(bins, {}, kBins).to(at::kDouble) / static_cast<double>(bins.numel());
  }

  std::vector<AttentionLayer> layers_;
  std::map<std::string, Layer, std::less<>> by_layer_;
};

const Registration kRank({.name = "rank",
                          .place = 4,
                          .about = "How many directions attention matrices have: the rank of each head's weights.",
                          .refusal = refuse_without_scores,
                          .make = [](const Reader& reader) -> std::unique_ptr<Analysis> {
                            return std::make_unique<Rank>(reader);
                          }});

}  // namespace
}  // namespace headroom::inspect
