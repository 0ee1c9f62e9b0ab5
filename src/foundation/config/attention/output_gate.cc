// gate_output = "none": no gate. "head", "element": each head output is multiplied by the sigmoid of a linear map of
// the query's token (gated attention, Qiu et al. 2025), or of its first gate_channels channels. With each of them,
// exclusive = true first removes the projection of the head output on the token's own value.
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "shared.h"

namespace headroom::config {

void OutputGatePart::describe(Fields& fields, AttentionOptions& o) const {
  fields.add("exclusive", o.of<OutputGateOptions>().exclusive,
             "remove from each head output its projection on the token's own value (exclusive self-attention)");
}

void OutputGatePart::check(const detail::Checker& check, const ModelOptions& model) const {
  const AttentionOptions& a = model.attention;
  const auto& own = a.of<OutputGateOptions>();
  check.require(!own.exclusive || a.projection->has_head_matrices(), "exclusive",
                "must be false with {}, which does not compute a token's value when decoding",
                detail::setting("projection", a.projection));
  check.require(!own.exclusive || a.composition->maps_per_head(a) == 1, "exclusive",
                "must be false with {}, whose head outputs are differences",
                detail::setting("composition", a.composition));
  check.require(!own.exclusive || a.projection->attends_everywhere(), "exclusive",
                "must be false with {}, whose heads read some of the tokens",
                detail::setting("projection", a.projection));
  check.require(own.gate_channels <= model.d_model, "gate_channels", "must be at most d_model = {}, got {}",
                model.d_model, own.gate_channels);
}

Exact OutputGatePart::inputs(const AttentionOptions& a, Exact d) const {
  const std::int64_t channels = a.of<OutputGateOptions>().gate_channels;
  return channels > 0 ? Exact(channels) : d;
}

namespace {

class NoOutputGate : public OutputGatePart {
 public:
  std::int64_t gates(const AttentionOptions&) const override { return 0; }
  std::vector<Example> examples() const override {
    return {{"none", [](AttentionOptions&) {}},
            {"exclusive", [](AttentionOptions& o) { o.of<OutputGateOptions>().exclusive = true; }}};
  }
};

class SigmoidGate : public OutputGatePart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    OutputGatePart::describe(fields, o);
    detail::add_strict(fields, "gate_channels", o.of<OutputGateOptions>().gate_channels, between(0, 65536),
                       "head, element: the gates read only the first channels of the token; 0: all");
  }
};

class HeadGate : public SigmoidGate {
 public:
  std::int64_t gates(const AttentionOptions&) const override { return 1; }
  std::vector<Example> examples() const override {
    return {{"head", [](AttentionOptions&) {}},
            {"head, 2 channels", [](AttentionOptions& o) { o.of<OutputGateOptions>().gate_channels = 2; }}};
  }
};

class ElementGate : public SigmoidGate {
 public:
  std::int64_t gates(const AttentionOptions& a) const override { return a.value_width(); }
  std::vector<Example> examples() const override {
    return {{"element", [](AttentionOptions&) {}},
            {"element, 2 channels, exclusive",
             [](AttentionOptions& o) { o.of<OutputGateOptions>() = {.exclusive = true, .gate_channels = 2}; }}};
  }
};

const Registration<NoOutputGate> kNoOutputGate("none", "no gate");
const Registration<HeadGate> kHeadGate("head", "a sigmoid gate for each head (gated attention)");
const Registration<ElementGate> kElementGate("element", "a sigmoid gate for each channel of each head");

}  // namespace
}  // namespace headroom::config
