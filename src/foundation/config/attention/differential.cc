// composition = "differential": each head subtracts a second attention matrix from its first (differential attention).
// Version 1: both matrices have their own keys, values are twice as wide, the factor is one learned scalar for each
// layer, and each head's output is normalised. Version 2: both matrices share their keys, the factor is computed from
// the token for each head, and there is no norm.
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "shared.h"

namespace headroom::config {
namespace {

class Differential : public CompositionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<DifferentialOptions>();
    detail::add_strict(
        fields, "differential_version", own.differential_version, between(1, 2),
        "differential: 1: two keys and a value of 2 d_head channels for each key and value head, and a norm of the "
        "head outputs; 2: keys and values as without composition, and a factor computed from the token");
    detail::add_strict(fields, "head_norm_epsilon", own.head_norm_epsilon, above(0),
                       "differential, version 1: epsilon of the norm of the head outputs, under the square root");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    check.require(a.score->has_scores(), "composition", "must be \"none\" with {}, which has no matrices to subtract",
                  detail::setting("score", a.score));
    check.require(a.key_components() == 1, "composition",
                  "must not be \"differential\" with several keys at each position, got {}; set keys = \"single\" or "
                  "another score",
                  a.key_components());
    check.require(a.projection->allows_several_maps(), "composition",
                  "must not be \"differential\" with {}, whose heads have one attention matrix each",
                  detail::setting("projection", a.projection));
  }

  std::vector<Example> examples() const override {
    return {{"differential", [](AttentionOptions&) {}}, {"differential, version 1", [](AttentionOptions& o) {
                                                           o.of<DifferentialOptions>().differential_version = 1;
                                                         }}};
  }

  std::int64_t maps_per_head(const AttentionOptions&) const override { return 2; }
  std::int64_t keys_per_head(const AttentionOptions& a) const override { return own(a).keys_per_head(); }
  std::int64_t value_factor(const AttentionOptions& a) const override { return own(a).value_factor(); }

  // Version 2: dHT MACs. Floats: the H differences of w channels, and in version 2 the HT factors.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact heads = z.t * a.n_heads;
    return {.macs = is_first(a) ? Exact(0) : heads * z.d,
            .memory = heads * a.value_width() + (is_first(a) ? Exact(0) : heads)};
  }
  bool keeps_width() const override { return false; }

 private:
  static const DifferentialOptions& own(const AttentionOptions& a) { return a.of<DifferentialOptions>(); }
  static bool is_first(const AttentionOptions& a) { return own(a).differential_version == 1; }
};

const Registration<Differential> kDifferential("differential", "by subtracting a second attention matrix");

}  // namespace
}  // namespace headroom::config
