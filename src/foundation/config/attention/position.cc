// Positions that the attention layers know nothing of: "none", or vectors added to the embeddings ("learned",
// "sinusoidal").
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"
#include "wavelengths.h"

namespace headroom::config {
namespace {

class NoPosition : public PositionPart {
 public:
  std::string_view name() const override { return "none"; }
  std::string_view about() const override { return "no scheme"; }
  void describe(Fields&, AttentionOptions&) const override {}
  void check(const detail::Checker&, const ModelOptions&) const override {}
  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}

  AddedVectors added_vectors() const override { return AddedVectors::none; }
  bool has_distances() const override { return false; }
  bool fits_width(const AttentionOptions&) const override { return true; }
  Sizes tensors(const AttentionOptions&, Exact) const override { return {}; }
  PaperTerms paper(const AttentionOptions&, const PaperSizes&) const override { return {}; }
  Exact offsets(const Span&) const override { return 0; }
  Exact cache_numbers(const AttentionOptions&) const override { return 0; }
};

class LearnedPosition : public NoPosition {
 public:
  std::string_view name() const override { return "learned"; }
  std::string_view about() const override { return "learned vectors added to the embeddings"; }
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    check.require(model.memory_length == 0, "position",
                  "must not be \"learned\" with memory_length = {}: its table ends with the context",
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

const Registration<NoPosition> kNoPosition;
const Registration<LearnedPosition> kLearnedPosition;
const Registration<SinusoidalPosition> kSinusoidalPosition;

}  // namespace
}  // namespace headroom::config
