// position = "rope": pairs of a head's channels turn by an angle that grows with the position.
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"
#include "wavelengths.h"

namespace headroom::config {
namespace {

// Before they are paired.
std::int64_t rotating_channels(const AttentionOptions& a) {
  return a.projection->rotary_channels(a);
}

class RotaryPosition : public PositionPart {
 public:
  std::string_view name() const override { return "rope"; }
  std::string_view about() const override { return "rotary"; }

  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("rope_fraction", o.rope_fraction, above_up_to(0, 1), "rope: part of a head's channels that rotates");
    describe_wavelengths(fields, o);
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::int64_t channels = rotating_channels(a);
    check.require(
        fits_width(a), "rope_fraction",
        "d_head = {} with rope_fraction = {} makes {} rotating channel{}, they must be pairs: change d_head or "
        "rope_fraction",
        a.d_head, a.rope_fraction, channels, channels == 1 ? "" : "s");
  }
  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}

  AddedVectors added_vectors() const override { return AddedVectors::none; }
  bool has_distances() const override { return true; }
  bool fits_width(const AttentionOptions& a) const override {
    return rotating_channels(a) >= 2 && rotating_channels(a) % 2 == 0;
  }
  Sizes tensors(const AttentionOptions&, Exact) const override { return {}; }
  PaperTerms paper(const AttentionOptions&, const PaperSizes&) const override { return {}; }
  Exact offsets(const Span&) const override { return 0; }
  Exact cache_numbers(const AttentionOptions&) const override { return 0; }
};

const Registration<RotaryPosition> kRotaryPosition;

}  // namespace

std::int64_t AttentionOptions::rope_channels() const {
  return rotating_channels(*this) / 2 * 2;
}

}  // namespace headroom::config
