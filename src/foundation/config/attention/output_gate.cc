// gate_output = "none": no gate. "head", "element": each head output is multiplied by the sigmoid of a linear map of
// the query's token (gated attention, Qiu et al. 2025).
#include "headroom/config/attention_part.h"

namespace headroom::config {
namespace {

class NoOutputGate : public OutputGatePart {
 public:
  std::string_view name() const override { return "none"; }
  std::string_view about() const override { return "no gate"; }
  std::int64_t gates(const AttentionOptions&) const override { return 0; }
};

class HeadGate : public OutputGatePart {
 public:
  std::string_view name() const override { return "head"; }
  std::string_view about() const override { return "a sigmoid gate for each head (gated attention)"; }
  std::int64_t gates(const AttentionOptions&) const override { return 1; }
};

class ElementGate : public OutputGatePart {
 public:
  std::string_view name() const override { return "element"; }
  std::string_view about() const override { return "a sigmoid gate for each channel of each head"; }
  std::int64_t gates(const AttentionOptions& a) const override { return a.value_width(); }
};

const Registration<NoOutputGate> kNoOutputGate;
const Registration<HeadGate> kHeadGate;
const Registration<ElementGate> kElementGate;

}  // namespace
}  // namespace headroom::config
