// position = "none": no positions. "learned", "sinusoidal": vectors added to the embeddings. "relative":
// Transformer-XL's term q . p(distance) W_pos is added to the scores. "rope": pairs of a head's channels rotate by an
// angle proportional to the position.
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"

namespace headroom::config {
namespace {

// Adds an option that several parts share, unless another part has added it.
void describe_wavelengths(Fields& fields, AttentionOptions& o) {
  if (!fields.has("rope_base")) {
    fields.add("rope_base", o.rope_base, above(1),
               "relative, rope, sinusoidal: base of the geometric series of wavelengths");
  }
}

// Returns the number of rotating channels as configured, which may be odd.
std::int64_t rotating_channels(const AttentionOptions& a) {
  return a.projection->rotary_channels(a);
}

class NoPosition : public PositionPart {
 public:
  std::string_view name() const override { return "none"; }
  std::string_view about() const override { return "no scheme"; }
  bool has_distances() const override { return false; }
};

class LearnedPosition : public NoPosition {
 public:
  std::string_view name() const override { return "learned"; }
  std::string_view about() const override { return "learned vectors added to the embeddings"; }
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    check.require(model.memory_length == 0, "position",
                  "must not be \"learned\" with memory_length = {}: its table has context_length rows",
                  model.memory_length);
  }
  AddedVectors added_vectors() const override { return AddedVectors::learned; }
};

class SinusoidalPosition : public NoPosition {
 public:
  std::string_view name() const override { return "sinusoidal"; }
  std::string_view about() const override { return "sines added to the embeddings"; }
  void describe(Fields& fields, AttentionOptions& o) const override { describe_wavelengths(fields, o); }
  AddedVectors added_vectors() const override { return AddedVectors::fixed; }
};

class RelativePosition : public PositionPart {
 public:
  std::string_view name() const override { return "relative"; }
  std::string_view about() const override { return "Transformer-XL's relative positions"; }

  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("position_bias", o.position_bias, "relative: Transformer-XL's learned biases u and v").refuse_unused =
        true;
    describe_wavelengths(fields, o);
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    check.require(a.score->has_scores(), "position",
                  "must not be \"relative\" with {}, which has no scores to add positions to",
                  detail::setting("score", a.score));
  }
  std::vector<Example> examples() const override {
    return {{"relative", [](AttentionOptions& o) { o.position_bias = true; }}};
  }

  bool has_distances() const override { return true; }

  // W_pos has d e elements per head; the biases u and v have e each.
  Sizes tensors(const AttentionOptions& a, Exact d) const override {
    const Exact channels = Exact(a.projection->position_heads(a)) * a.d_head;
    return Sizes{d * channels} + Sizes(a.position_bias ? 2 : 0, channels);
  }

  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    return a.projection->paper_positions(a, z);
  }

  // Distances to earlier keys and, unless the attention is causal, to later keys.
  Exact offsets(const AttentionExtent& extent) const override {
    return !extent.self ? 0 : extent.causal ? extent.sources : extent.sources + (extent.queries.value() - 1);
  }
};

class RotaryPosition : public PositionPart {
 public:
  std::string_view name() const override { return "rope"; }
  std::string_view about() const override { return "rotary"; }

  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("rope_fraction", o.rope_fraction, above_up_to(0, 1), "rope: fraction of a head's channels that rotate");
    describe_wavelengths(fields, o);
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::int64_t channels = rotating_channels(a);
    check.require(
        fits_width(a), "rope_fraction",
        "d_head = {} with rope_fraction = {} gives {} rotating channel{}; the number must be even: change d_head or "
        "rope_fraction",
        a.d_head, a.rope_fraction, channels, channels == 1 ? "" : "s");
  }

  bool has_distances() const override { return true; }
  bool fits_width(const AttentionOptions& a) const override {
    return rotating_channels(a) >= 2 && rotating_channels(a) % 2 == 0;
  }
};

const Registration<NoPosition> kNoPosition;
const Registration<LearnedPosition> kLearnedPosition;
const Registration<SinusoidalPosition> kSinusoidalPosition;
const Registration<RelativePosition> kRelativePosition;
const Registration<RotaryPosition> kRotaryPosition;

}  // namespace

std::int64_t AttentionOptions::rope_channels() const {
  return rotating_channels(*this) / 2 * 2;
}

}  // namespace headroom::config
