// score = "linear": feature maps instead of a softmax, with a recurrent state instead of scores (linear Transformers).
// There is one key or a mixture of keys per position (MLK and sMLK of Transformer-MGK).

#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class LinearScore : public ScorePart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<LinearOptions>();
    detail::describe_key_mixture(fields, o);
    fields.add("feature_map", own.feature_map, "linear: elu(x) + 1, or the same divided by its sum over channels");
    fields.add("linear_mixing", own.linear_mixing, "linear: sum the components after or before the feature map");
    fields.add("normaliser", own.normaliser, "linear: divide by the sum of a query's weights (sum), or not (none)");
    fields.add("normaliser_epsilon", own.normaliser_epsilon, at_least(0), "linear: epsilon added to that sum");
    fields.add("score_scale", own.score_scale, "linear: factor of the weights: 1, or 1/sqrt(d_head)");
    fields.add("output_scale", own.output_scale,
               "linear: factor of the output: 1, 1/sqrt(d_head), or 1/sqrt(sequence length)");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string score = detail::setting("score", a.score);
    detail::check_prior(check, a);
    check.require(a.scale == Scale::inv_sqrt, "scale",
                  "must be \"inv_sqrt\" (unused) with {}, which uses score_scale and output_scale", score);
    detail::check_no_soft_e(check, a);
    check.require(
        a.position != "rope" || model.memory_length == 0, "position",
        "must not be \"rope\" with {} and memory_length = {}: cached keys cannot be rotated after the feature map",
        score, model.memory_length);
  }

  std::vector<Example> examples() const override {
    return {{"linear", [](AttentionOptions& o) { o.of<MixtureOptions>().keys = Keys::single; }},
            {"linear, own keys", [](AttentionOptions&) {}},
            {"linear, shifted keys", [](AttentionOptions& o) {
               o.of<MixtureOptions>().keys = Keys::shifted;
               o.of<MixtureOptions>().prior = Prior::head_position;
             }}};
  }

  std::int64_t key_components(const AttentionOptions& a) const override { return a.of<MixtureOptions>().components(); }
  std::int64_t key_projections(const AttentionOptions& a) const override {
    return a.of<MixtureOptions>().projections();
  }
  bool has_scores() const override { return false; }
  bool has_state() const override { return true; }
  bool is_bilinear() const override { return false; }
  bool is_normalised() const override { return false; }

  // (C + 1)THe^2 MACs. Floats: (C + 1)THe for the features and He^2 for the state.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact heads = Exact(a.computed_heads()) * a.d_head, features = (z.s + z.t) * heads;
    return detail::more_keys(a, z) + PaperTerms{.macs = features * a.d_head, .memory = features + heads * a.d_head};
  }

  bool keeps_width() const override { return false; }
};

const Registration<LinearScore> kLinearScore("linear", "linear attention by feature maps");

}  // namespace
}  // namespace headroom::config
