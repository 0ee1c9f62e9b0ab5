// gate_output = "none": heads' results go to the output projection as they are.
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"

namespace headroom::config {
namespace {

class NoOutputGate : public OutputGatePart {
 public:
  std::string_view name() const override { return "none"; }
  std::string_view about() const override { return "nothing"; }
  void describe(Fields&, AttentionOptions&) const override {}
  void check(const detail::Checker&, const ModelOptions&) const override {}
  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}
  std::int64_t gates(const AttentionOptions&) const override { return 0; }
};

const Registration<NoOutputGate> kNoOutputGate;

}  // namespace
}  // namespace headroom::config
