// gate_output = "none": no gate. "head", "element": each head output is multiplied by the sigmoid of a linear map of
// the query's token (gated attention, Qiu et al. 2025).
#include "headroom/config/attention_part.h"

namespace headroom::config {
namespace {

class NoOutputGate : public OutputGatePart {
 public:
  std::int64_t gates(const AttentionOptions&) const override { return 0; }
};

class HeadGate : public OutputGatePart {
 public:
  std::int64_t gates(const AttentionOptions&) const override { return 1; }
};

class ElementGate : public OutputGatePart {
 public:
  std::int64_t gates(const AttentionOptions& a) const override { return a.value_width(); }
};

const Registration<NoOutputGate> kNoOutputGate("none", "no gate");
const Registration<HeadGate> kHeadGate("head", "a sigmoid gate for each head (gated attention)");
const Registration<ElementGate> kElementGate("element", "a sigmoid gate for each channel of each head");

}  // namespace
}  // namespace headroom::config
