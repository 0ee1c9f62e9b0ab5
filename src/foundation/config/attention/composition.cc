// composition = "none": heads are independent. "static": a learned map between heads (talking heads). "dynamic": maps
// computed from the tokens, optionally with a static map (DCMHA).
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::config {
namespace {

// Returns the number of stages that are composed: before the softmax, after it.
std::int64_t stages_of(const AttentionOptions& a) {
  const auto& own = a.of<CompositionOptions>();
  return (own.composes("pre") ? 1 : 0) + (own.composes("post") ? 1 : 0);
}

// Returns m, the size of a group of neighbouring heads that mix with each other.
Exact heads_of_group(const AttentionOptions& a) {
  return a.n_heads / a.of<CompositionOptions>().compose_groups;
}

class NoComposition : public CompositionPart {
 public:
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const auto& unused = model.attention.of<CompositionOptions>();
    check.require(!unused.compose_static, "compose_static", "needs composition = \"dynamic\", not \"none\"");
    check.require(unused.compose_skip, "compose_skip", "must be true with composition = \"none\"");
  }

  PaperTerms paper(const AttentionOptions&, const PaperSizes&) const override { return {}; }
  bool keeps_width() const override { return false; }
};

class StaticMap : public CompositionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<CompositionOptions>();
    fields.add("compose", own.compose, {"pre", "post"},
               "static, dynamic: compose scores before the softmax, weights after it, or both");
    fields.add("compose_skip", own.compose_skip,
               "static, dynamic: add the result of the maps to each head's own scores");
    fields.add("compose_groups", own.compose_groups, between(1, 65536),
               "static, dynamic: groups of neighbouring heads, between which heads do not mix; divides n_heads");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const auto& own = a.of<CompositionOptions>();
    check.require(a.score->has_scores(), "composition", "must be \"none\" with {}, which has no scores to mix",
                  detail::setting("score", a.score));
    check.require(a.projection->has_fixed_heads(), "composition",
                  "must be \"none\" with {}, which routes each token to other heads",
                  detail::setting("projection", a.projection));
    check.require(!own.compose.empty(), "compose", "must name \"pre\", \"post\" or both with {}",
                  detail::setting("composition", a.composition));
    check.require_distinct("compose", own.compose);
    check.require(a.n_heads % own.compose_groups == 0, "compose_groups", "must divide n_heads = {}, got {}", a.n_heads,
                  own.compose_groups);
  }

  // Per stage: CT^2Hm MACs, and another matrix of CT^2H floats.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    return {.macs = z.t * z.s * map_elements(a), .memory = z.t * z.s * a.n_heads * stages_of(a)};
  }
  bool keeps_width() const override { return true; }  // the paper adds composition to unchanged heads
  bool has_maps(const AttentionOptions& a, std::string_view stage) const override {
    return a.of<CompositionOptions>().composes(stage);
  }

 private:
  virtual bool has_map(const AttentionOptions&) const { return true; }
  Exact map_elements(const AttentionOptions& a) const {
    return has_map(a) ? heads_of_group(a) * a.n_heads * stages_of(a) : 0;
  }
};

class DynamicMaps : public StaticMap {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<CompositionOptions>();
    StaticMap::describe(fields, o);
    fields.add("compose_low_rank", own.compose_low_rank, {"query", "key"}, "dynamic: sides with low-rank maps");
    fields.add("compose_gates", own.compose_gates, {"query", "key"}, "dynamic: sides with a gate for each head");
    fields.add("compose_static", own.compose_static, "dynamic: a static map in addition to the dynamic ones");
    fields.add("compose_rank", own.compose_rank, between(1, 1024), "dynamic: rank of the low-rank maps");
    fields.add("compose_activation", own.compose_activation, "dynamic: non-linearity of the low-rank maps");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const auto& own = a.of<CompositionOptions>();
    StaticMap::check(check, model);
    check.require(!own.compose_low_rank.empty() || !own.compose_gates.empty(), "compose_low_rank",
                  "must not be [] with {} if compose_gates is [] too: nothing would depend on the tokens",
                  detail::setting("composition", a.composition));
    check.require_distinct("compose_low_rank", own.compose_low_rank);
    check.require_distinct("compose_gates", own.compose_gates);
  }

  // Per stage and side, in addition to the matrix. Low-rank map: 2 R CT^2H MACs and R groups CT^2 floats. Factors for T
  // (query side) or CT (key side) tokens: factor_macs() per token, and I groups + 2 R H floats, I = 2 R m.
  // Gates: dH MACs and H floats per token.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const auto& own = a.of<CompositionOptions>();
    PaperTerms sides;
    const Exact pairs = z.t * z.s;
    for (const auto& [side, tokens] : {std::pair("query", z.t), std::pair("key", z.s)}) {
      sides.macs += factor_macs(a, z.d, side) * tokens;
      sides.memory += factors(a, side) * tokens;
      if (own.has_low_rank(side)) {
        sides.macs += pairs * a.n_heads * own.compose_rank * 2;
        sides.memory += pairs * own.compose_groups * own.compose_rank + tokens * a.n_heads * own.compose_rank * 2;
      }
    }
    const std::int64_t stages = stages_of(a);
    return StaticMap::paper(a, z) + PaperTerms{.macs = sides.macs * stages, .memory = sides.memory * stages};
  }

 private:
  bool has_map(const AttentionOptions& a) const override { return a.of<CompositionOptions>().compose_static; }

  // Returns the elements of one token's factors.
  static Exact factors(const AttentionOptions& a, const char* side) {
    const auto& own = a.of<CompositionOptions>();
    return Exact(a.n_heads) * ((own.has_low_rank(side) ? 2 * own.compose_rank : 0) + (own.has_gates(side) ? 1 : 0));
  }

  // Returns the MACs per token that compute the factors: d I groups + 2 R I H with I = 2 R m for a low-rank map, d H
  // for gates.
  static Exact factor_macs(const AttentionOptions& a, Exact d, const char* side) {
    const auto& own = a.of<CompositionOptions>();
    const Exact hidden = Exact(2) * own.compose_rank * heads_of_group(a), heads = a.n_heads;
    return (own.has_low_rank(side) ? hidden * own.compose_groups * d + hidden * heads * own.compose_rank * 2 : 0) +
           (own.has_gates(side) ? d * heads : 0);
  }
};

const Registration<NoComposition> kNoComposition("none", "not at all");
const Registration<StaticMap> kStaticMap("static", "by a fixed learned map");
const Registration<DynamicMaps> kDynamicMaps("dynamic", "by maps computed per token (DCMHA)");

}  // namespace
}  // namespace headroom::config
