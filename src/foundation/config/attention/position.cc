// position = "none": no positions. "learned", "sinusoidal": vectors added to the embeddings. "relative":
// Transformer-XL's term q . p(distance) W_pos is added to the scores. "rope": pairs of a head's channels rotate by an
// angle proportional to the position.
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::config {
namespace {

void describe_wavelengths(Fields& fields, AttentionOptions& o) {
  fields.add("rope_base", o.of<PositionOptions>().rope_base, above(1),
             "relative, rope, sinusoidal: base of the geometric series of wavelengths");
}

class NoPosition : public PositionPart {
 public:
  bool has_distances() const override { return false; }
};

class LearnedPosition : public NoPosition {
 public:
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    check.require(model.memory_length == 0, "position",
                  "must not be \"learned\" with memory_length = {}: its table has context_length rows",
                  model.memory_length);
  }
  AddedVectors added_vectors() const override { return AddedVectors::learned; }
};

class SinusoidalPosition : public NoPosition {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override { describe_wavelengths(fields, o); }
  AddedVectors added_vectors() const override { return AddedVectors::fixed; }
};

class RelativePosition : public PositionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    fields
        .add("position_bias", o.of<PositionOptions>().position_bias,
             "relative: Transformer-XL's learned biases u and v")
        .refuse_unused = true;
    describe_wavelengths(fields, o);
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    check.require(a.score->has_scores(), "position",
                  "must not be \"relative\" with {}, which has no scores to add positions to",
                  detail::setting("score", a.score));
  }
  std::vector<Example> examples() const override {
    return {{"relative", [](AttentionOptions& o) { o.of<PositionOptions>().position_bias = true; }}};
  }

  bool has_distances() const override { return true; }
  bool has_offsets() const override { return true; }

  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    return a.projection->paper_positions(a, z);
  }
};

class RotaryPosition : public PositionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("rope_fraction", o.of<PositionOptions>().rope_fraction, above_up_to(0, 1),
               "rope: fraction of a head's channels that rotate");
    describe_wavelengths(fields, o);
    auto& own = o.of<PositionOptions>();
    fields
        .add(
            "rope_scaling", own.rope_scaling,
            "rope: slower rotations, for longer contexts than in pre-training; linear: of all channels (position "
            "interpolation); yarn: of slow channels only (Peng et al. 2023); llama3: of slow channels only (LLaMA 3.1)")
        .refuse_unused = true;
    fields.add("rope_factor", own.rope_factor, at_least(1),
               "rope_scaling: context length divided by rope_original_length");
    fields.add("rope_original_length", own.rope_original_length, between(0, 1 << 30),
               "yarn, llama3: context length in pre-training, in tokens");
    fields.add("rope_beta_fast", own.rope_beta_fast, above(0),
               "yarn: channels that turn more often than this in rope_original_length tokens keep their frequency");
    fields.add("rope_beta_slow", own.rope_beta_slow, above(0),
               "yarn: channels that turn less often than this are slowed down by rope_factor; those in between are "
               "interpolated");
    fields.add("rope_truncate", own.rope_truncate, "yarn: round these two limits to whole channels, outwards");
    fields.add("rope_attention_factor", own.rope_attention_factor, at_least(0),
               "yarn: factor of rotated queries and keys; 0: 0.1 ln(rope_factor) + 1");
    fields.add("rope_low_freq_factor", own.rope_low_freq_factor, above(0),
               "llama3: channels that turn less often in rope_original_length tokens are slower by rope_factor");
    fields.add("rope_high_freq_factor", own.rope_high_freq_factor, above(0),
               "llama3: channels that turn more often keep their speed; in between, both are mixed");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const auto& own = a.of<PositionOptions>();
    check.require(!own.has_original_length() || own.rope_original_length > 0, "rope_original_length",
                  "must be above 0 with rope_scaling = \"{}\"", name_of(own.rope_scaling));
    check.require(own.rope_scaling != RopeScaling::llama3 || own.rope_low_freq_factor < own.rope_high_freq_factor,
                  "rope_low_freq_factor", "must be below rope_high_freq_factor = {}, got {}", own.rope_high_freq_factor,
                  own.rope_low_freq_factor);
    const std::int64_t channels = a.projection->rotary_channels(a);
    check.require(fits_width(a), "rope_fraction",
                  "d_head = {} with rope_fraction = {} gives {} rotating channel{}; the number must be even: change "
                  "d_head or rope_fraction",
                  a.d_head, a.of<PositionOptions>().rope_fraction, channels, channels == 1 ? "" : "s");
  }

  std::vector<Example> examples() const override {
    return {{"rope", [](AttentionOptions&) {}}, {"rope, scaled", [](AttentionOptions& o) {
                                                   auto& own = o.of<PositionOptions>();
                                                   own.rope_scaling = RopeScaling::yarn;
                                                   own.rope_factor = 4.0;
                                                   own.rope_original_length = 8;
                                                 }}};
  }

  bool has_distances() const override { return true; }
  bool fits_width(const AttentionOptions& a) const override {
    const std::int64_t channels = a.projection->rotary_channels(a);
    return channels >= 2 && channels % 2 == 0;
  }
};

const Registration<NoPosition> kNoPosition("none", "no scheme");
const Registration<LearnedPosition> kLearnedPosition("learned", "learned vectors added to the embeddings");
const Registration<SinusoidalPosition> kSinusoidalPosition("sinusoidal", "sines added to the embeddings");
const Registration<RelativePosition> kRelativePosition("relative", "Transformer-XL's relative positions");
const Registration<RotaryPosition> kRotaryPosition("rope", "rotary");

}  // namespace

}  // namespace headroom::config
