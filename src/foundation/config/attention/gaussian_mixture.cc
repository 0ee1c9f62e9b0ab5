// score = "gaussian_mixture": several keys per position, scored by Gaussians of their distance to the query or by dot
// products (Transformer-MGK).
#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class GaussianMixture : public detail::ScoreMatrix {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<MixtureOptions>();
    detail::describe_key_mixture(fields, o);
    detail::add_strict(fields, "mixing", own.mixing,
                       "gaussian_mixture: sum over the components, or only the nearest one (max)");
    fields.add("soft_e_pairs", own.soft_e_pairs,
               "gaussian_mixture, soft_e: average over all pairs of tokens, or those without padding (valid)");
    detail::add_strict(
        fields, "mixture_score", own.mixture_score,
        "gaussian_mixture: a Gaussian of the distance between query and key, or their scaled dot product");
    detail::add_strict(
        fields, "mixture_coefficients", own.mixture_coefficients, above(0),
        "gaussian_mixture: factor of each component's squared distance, times sqrt(d_head); []: 0.5 each");
    detail::add_strict(fields, "mixture_epsilon", own.mixture_epsilon, at_least(0),
                       "gaussian_mixture: added to the sum of a query's weights");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const auto& own = a.of<MixtureOptions>();
    detail::check_prior(check, a);
    const std::size_t n = own.mixture_coefficients.size();
    const auto components = static_cast<std::size_t>(own.components());
    check.require(n == 0 || (own.mixture_score == MixtureScore::gaussian && n == components), "mixture_coefficients",
                  "must be [] or {} numbers, one for each Gaussian key, got {}", components, n);
    check.require(own.prior_update != PriorUpdate::soft_e || model.n_groups == 0, "prior_update",
                  "must not be \"soft_e\" with n_groups = {}: a prior is updated by one layer", model.n_groups);
    check.require(own.mixing == Mixing::sum || own.mixture_epsilon == 0.0, "mixture_epsilon",
                  "needs mixing = \"sum\", not \"max\"");
    check.require(own.prior_update != PriorUpdate::soft_e || own.has_prior(), "prior_update",
                  "\"soft_e\" needs mixing = \"sum\", a prior and several keys at each position");
  }

  std::vector<Example> examples() const override {
    return {{"gaussian, own keys", [](AttentionOptions&) {}},
            {"gaussian, shifted keys",
             [](AttentionOptions& o) {
               o.of<MixtureOptions>().keys = Keys::shifted;
               o.of<MixtureOptions>().prior = Prior::head_position;
             }},
            {"gaussian, max", [](AttentionOptions& o) {
               o.of<MixtureOptions>().mixing = Mixing::max;
               o.of<MixtureOptions>().mixture_score = MixtureScore::dot;
             }}};
  }

  bool is_bilinear() const override { return false; }
  std::int64_t key_components(const AttentionOptions& a) const override { return a.of<MixtureOptions>().components(); }
  std::int64_t key_projections(const AttentionOptions& a) const override {
    return a.of<MixtureOptions>().projections();
  }

  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    return ScoreMatrix::paper(a, z) + detail::more_keys(a, z);
  }

  bool keeps_width() const override { return true; }  // the paper uses fewer heads of the same width
};

const Registration<GaussianMixture> kGaussianMixture("gaussian_mixture", "mixture of Gaussian keys (Transformer-MGK)");

}  // namespace
}  // namespace headroom::config
