// The rank of attention matrices by their singular values (Transformer-MGK, Figures 2 and 6).
#include "headroom/inspect/analysis.h"
#include "layers.h"

namespace headroom::inspect {
namespace {

constexpr double kThreshold = 1e-6;  // singular values of at least this count
constexpr std::int64_t kSamples = 4;

class Rank : public Analysis {
 public:
  explicit Rank(const Reader& reader) : layers_(reader.attention_layers()) {}

  std::int64_t samples() const override { return kSamples; }
  bool wants(std::string_view name, const Reading& /*reading*/) const override { return name.ends_with(last_weights_); }
  void see(std::string_view name, const at::Tensor& value, const Reading& /*reading*/) override {
    const at::Tensor singular = at::linalg_svdvals(value[0].to(at::kDouble));  // [H, min(T, S)]
    ranks_[layer_of(name)].push_back(singular.ge(kThreshold).sum(-1));
  }
  Findings finish(const Reader& /*reader*/) override {
    Findings found;
    for (const auto& [layer, each] : ranks_) {
      const at::Tensor all = at::stack(each);  // [samples, H]
      found.tensors["rank." + layer] = all;
      found.figures["mean_rank"][layer] = all.to(at::kDouble).mean().item<double>();
    }
    return found;
  }

 private:
  std::string last_weights_ = ".probs";
  std::vector<AttentionLayer> layers_;
  std::map<std::string, std::vector<at::Tensor>, std::less<>> ranks_;
};

const Registration kRank({.name = "rank",
                          .about = "Rank of attention matrices: singular values of at least 1e-6.",
                          .refusal = refuse_without_scores,
                          .make = [](const Reader& reader) -> std::unique_ptr<Analysis> {
                            return std::make_unique<Rank>(reader);
                          }});

}  // namespace
}  // namespace headroom::inspect
