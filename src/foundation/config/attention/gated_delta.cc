// score = "gated_delta": linear attention with the gated delta rule (Gated DeltaNet), a short convolution before it and
// a norm with a SiLU gate after it.
//
// Symbols in addition to those of attention_part.h: G = query and key heads, w = width of a value, c = taps of the
// convolution.
#include "foundation/config/checker.h"
#include "foundation/core/ceil_div.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "shared.h"

namespace headroom::config {
namespace {

class GatedDelta : public ScorePart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<GatedDeltaOptions>();
    detail::add_strict(fields, "delta_key_heads", own.delta_key_heads, between(0, 65536),
                       "gated_delta: query and key heads, each for n_heads / delta_key_heads value heads; 0: n_heads");
    detail::add_strict(fields, "delta_d_value", own.delta_d_value, between(0, 65536),
                       "gated_delta: channels of a value; 0: d_head");
    fields.add("delta_conv_width", own.delta_conv_width, between(1, 64),
               "gated_delta: tokens that the short convolution covers, including the current one");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string score = detail::setting("score", a.score);
    check.require(model.kind == ModelKind::language_model, "score",
                  "must not be \"gated_delta\" with {}: its state needs a causal model without cross-attention",
                  detail::setting("kind", model.kind));
    check.require(model.memory_length == 0, "score",
                  "must not be \"gated_delta\" with memory_length = {}: its state replaces cached tokens",
                  model.memory_length);
    check.require(!a.position->has_distances(), "position",
                  "must be \"none\" or added to the embeddings with {}, whose decay orders the tokens, got \"{}\"",
                  score, name_of(a.position));
    check.require(a.projection->has_projected_heads(), "score",
                  "must not be \"gated_delta\" with {}, which does not make queries, keys and values of each head",
                  detail::setting("projection", a.projection));
    check.require(a.n_kv_heads == 0 || a.n_kv_heads == a.n_heads, "n_kv_heads",
                  "must be 0 with {}, which has n_heads value heads, got {}; set delta_key_heads", score, a.n_kv_heads);
    check.require(!a.qk_norm, "qk_norm", "must be false with {}, which normalises queries and keys itself", score);
    check.require(a.scale == Scale::inv_sqrt, "scale", "must be \"inv_sqrt\" with {}", score);
    check.require(a.n_heads % key_heads(a) == 0, "delta_key_heads", "must divide n_heads = {}, got {}", a.n_heads,
                  key_heads(a));
    const bool alike = key_heads(a) == a.n_heads && width(a) == a.d_head;
    check.require(alike || a.projection == "dense", key_heads(a) != a.n_heads ? "delta_key_heads" : "delta_d_value",
                  "must be 0 with {}, only dense projections have other heads for values",
                  detail::setting("projection", a.projection));
  }

  std::vector<Example> examples() const override {
    return {{"gated delta", [](AttentionOptions&) {}},
            {"gated delta, grouped values", [](AttentionOptions& o) {
               o.of<GatedDeltaOptions>() = {.delta_key_heads = 1, .delta_d_value = 3, .delta_conv_width = 2};
             }}};
  }

  std::int64_t key_components(const AttentionOptions&) const override { return 1; }
  std::int64_t key_projections(const AttentionOptions&) const override { return 1; }
  bool has_scores() const override { return false; }
  bool is_bilinear() const override { return false; }
  bool is_normalised() const override { return false; }
  bool is_recurrent() const override { return true; }
  bool has_state() const override { return true; }
  std::int64_t projected_heads(const AttentionOptions& a, char which) const override {
    return which == 'q' || which == 'k' ? key_heads(a) : a.n_heads;
  }
  std::int64_t value_width(const AttentionOptions& a) const override { return width(a); }

  // After the convolution and the norm of q and k: 2 (2 G e + H w). The rows written to the state, z and the gate: 3 H
  // w.
  Exact saved_elements(const AttentionOptions& a, const AttentionExtent& extent) const override {
    const std::int64_t chunks = ceil_div(extent.queries.value(), kDeltaChunk);
    return extent.queries * (convolved(a) * 2 + Exact(a.n_heads) * width(a) * 3) + state(a) * chunks;
  }
  // No paper counts the layer: MACs as executed. Per token: c (2 G e + H w) for the convolution, d (2 H + H w) for
  // beta, decay and gate. Per head: 3 e w to read the state twice and to write to it. Convolved q, k, v, the gate and
  // the state are stored.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact heads = a.n_heads;
    return {.macs = z.t * (convolved(a) * own(a).delta_conv_width + z.d * heads * (Exact(width(a)) + 2) +
                           heads * a.d_head * width(a) * 3),
            .memory = z.t * (convolved(a) + Exact(a.n_heads) * width(a)) + state(a)};
  }

  bool keeps_width() const override { return false; }

 private:
  static const GatedDeltaOptions& own(const AttentionOptions& a) { return a.of<GatedDeltaOptions>(); }
  static std::int64_t key_heads(const AttentionOptions& a) {
    return own(a).delta_key_heads > 0 ? own(a).delta_key_heads : a.n_heads;
  }
  static std::int64_t width(const AttentionOptions& a) {
    return own(a).delta_d_value > 0 ? own(a).delta_d_value : a.d_head;
  }
  // 2 G e + H w.
  static Exact convolved(const AttentionOptions& a) {
    return Exact(key_heads(a)) * a.d_head * 2 + Exact(a.n_heads) * width(a);
  }
  static Exact state(const AttentionOptions& a) { return Exact(a.n_heads) * a.d_head * width(a); }
};

const Registration<GatedDelta> kGatedDelta("gated_delta",
                                           "linear attention with the gated delta rule (Gated DeltaNet)");

}  // namespace
}  // namespace headroom::config
