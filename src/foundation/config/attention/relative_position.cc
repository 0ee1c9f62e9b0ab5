// position = "relative": Transformer-XL's term q . p(distance) W_pos on the scores.
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"
#include "wavelengths.h"

namespace headroom::config {
namespace {

class RelativePosition : public PositionPart {
 public:
  std::string_view name() const override { return "relative"; }
  std::string_view about() const override { return "Transformer-XL's distances on the scores"; }

  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("position_bias", o.position_bias, "relative: Transformer-XL's learned biases u and v");
    describe_wavelengths(fields, o);
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    check.require(a.score->has_scores(), "position",
                  "must not be \"relative\" with {}, which never has the scores that positions add to",
                  detail::setting("score", a.score));
  }
  void check_absent(const detail::Checker& check, const AttentionOptions& a) const override {
    check.require(!a.position_bias, "position_bias", "needs position = \"relative\", not \"{}\"", name_of(a.position));
  }

  std::vector<Example> examples() const override {
    return {{"relative", [](AttentionOptions& o) { o.position_bias = true; }}};
  }

  AddedVectors added_vectors() const override { return AddedVectors::none; }
  bool has_distances() const override { return true; }
  bool fits_width(const AttentionOptions&) const override { return true; }

  // d e a head, and u and v.
  Sizes tensors(const AttentionOptions& a, Exact d) const override {
    const Exact channels = Exact(a.projection->position_heads(a)) * a.d_head;
    return Sizes{d * channels} + Sizes(a.position_bias ? 2 : 0, channels);
  }

  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    return a.projection->paper_positions(a, z);
  }

  // Those of the past, and of later keys where they are seen.
  Exact offsets(const Span& span) const override {
    return !span.self ? 0 : span.causal ? span.sources : span.sources + (span.queries.value() - 1);
  }
  Exact cache_numbers(const AttentionOptions&) const override { return 0; }
};

const Registration<RelativePosition> kRelativePosition;

}  // namespace
}  // namespace headroom::config
