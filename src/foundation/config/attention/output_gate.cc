// gate_output = "head", "element": each head's result is multiplied by the sigmoid of a product of the query's token
// (gated attention, Qiu et al. 2025).
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"

namespace headroom::config {
namespace {

class HeadGate : public OutputGatePart {
 public:
  std::string_view name() const override { return "head"; }
  std::string_view about() const override { return "a sigmoid gate of each head (gated attention)"; }
  void describe(Fields&, AttentionOptions&) const override {}
  void check(const detail::Checker&, const ModelOptions&) const override {}
  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}
  std::int64_t gates(const AttentionOptions&) const override { return 1; }
};

class ElementGate : public HeadGate {
 public:
  std::string_view name() const override { return "element"; }
  std::string_view about() const override { return "a sigmoid gate of each channel of each head"; }
  std::int64_t gates(const AttentionOptions& a) const override { return a.value_width(); }
};

const Registration<HeadGate> kHeadGate;
const Registration<ElementGate> kElementGate;

}  // namespace
}  // namespace headroom::config
