// projection = "tied": grouped-tied attention. Each group of query heads shares one state per token, which is the
// value; its first half is half of the key, and all groups share the other half, which rotates. Decoding caches the
// states and the shared half.
#include "foundation/config/checker.h"
#include "headroom/config/part_options.h"
#include "shared.h"

namespace headroom::config {
namespace {

class TiedHeads : public detail::HeadProjections {
 public:
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string projection = detail::setting("projection", a.projection);
    detail::check_groups(check, a);
    check.require(
        model.norm_position != NormPosition::peri, "projection",
        "must not be \"tied\" with norm_position = \"peri\", which computes keys and values from different inputs");
    check.require(a.d_head % 2 == 0, "d_head", "must be even with {}, whose keys have two halves, got {}", projection,
                  a.d_head);
    check.require(a.of<PositionOptions>().rope_fraction == 1.0, "rope_fraction",
                  "must be 1 with {}, where the shared half of the keys rotates", projection);
    check.require(!a.qk_norm, "qk_norm", "must be false with {}, whose keys are parts of the values", projection);
    check.require(a.key_projections() == 1, "keys",
                  "must be \"shifted\" or \"single\" with {}, which has one key per position", projection);
  }

  std::vector<Example> examples() const override {
    return {{"tied", [](AttentionOptions& o) {
               o.n_kv_heads = 1;
               o.bias = true;
             }}};
  }

  std::int64_t rotary_channels(const AttentionOptions& a) const override { return a.d_head / 2; }
  bool has_head_matrices() const override { return false; }
  bool starts_truncated() const override { return true; }

  // MACs: all matrices for T tokens. Floats: q, the states, the shared half of the keys, and o of T tokens.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact channels = Exact(a.n_heads) * a.d_head * 2 + Exact(a.kv_heads()) * a.d_head + a.d_head / 2;
    return {.macs = z.t * z.d * channels, .memory = z.t * channels};
  }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} ({} tied kv)", a.n_heads, a.kv_heads());
  }
  std::int64_t d_head_step() const override { return 2; }
};

const Registration<TiedHeads> kTiedHeads("tied", "grouped heads whose values are half of their keys (GTA)");

}  // namespace
}  // namespace headroom::config
