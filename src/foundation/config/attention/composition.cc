// composition = "none": heads are independent. "static": a learned map between heads (talking heads). "dynamic": maps
// computed from the tokens, optionally with a static map (DCMHA).
#include "foundation/config/checker.h"
#include "headroom/config/attention/composition_options.h"
#include "headroom/config/attention_part.h"

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

  Sizes tensors(const AttentionOptions&, Exact) const override { return {}; }
  Exact products(const AttentionOptions&, Exact, const AttentionExtent&) const override { return 0; }
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

  // H m elements per stage.
  Sizes tensors(const AttentionOptions& a, Exact) const override {
    const auto stages = static_cast<std::size_t>(stages_of(a));
    return has_map(a) ? Sizes(stages, heads_of_group(a) * a.n_heads) : Sizes();
  }
  // T S H m MACs per stage.
  Exact products(const AttentionOptions& a, Exact, const AttentionExtent& extent) const override {
    return extent.queries * extent.sources * map_elements(a);
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

  Sizes tensors(const AttentionOptions& a, Exact d) const override {
    Sizes all = StaticMap::tensors(a, d);
    for (std::int64_t stage = 0; stage < stages_of(a); ++stage) {
      all = all + factor_tensors(a, d, "query") + factor_tensors(a, d, "key");
    }
    return all;
  }

  // Per stage and side: the factors for T (query side) or S (key side) tokens, and 2 R T S H for a low-rank map. Gates
  // are applied elementwise, which is not counted.
  Exact products(const AttentionOptions& a, Exact d, const AttentionExtent& extent) const override {
    const auto& own = a.of<CompositionOptions>();
    Exact macs = 0;
    for (const auto& [side, tokens] : {std::pair("query", extent.queries), std::pair("key", extent.sources)}) {
      const Exact maps = extent.queries * extent.sources * a.n_heads * own.compose_rank * 2;
      macs += sum_of(factor_tensors(a, d, side)) * tokens + (own.has_low_rank(side) ? maps : 0);
    }
    return StaticMap::products(a, d, extent) + macs * stages_of(a);
  }

  // Per stage and side, in addition to the matrix. Low-rank map: 2 R CT^2H MACs and R groups CT^2 floats. Factors for T
  // (query side) or CT (key side) tokens: factor_tensors() MACs per token, and I groups + 2 R H floats, I = 2 R m.
  // Gates: dH MACs and H floats per token.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const auto& own = a.of<CompositionOptions>();
    PaperTerms sides;
    const Exact pairs = z.t * z.s;
    for (const auto& [side, tokens] : {std::pair("query", z.t), std::pair("key", z.s)}) {
      sides.macs += sum_of(factor_tensors(a, z.d, side)) * tokens;
      sides.memory += factors(a, side) * tokens;
      if (own.has_low_rank(side)) {
        sides.macs += pairs * a.n_heads * own.compose_rank * 2;
        sides.memory += pairs * own.compose_groups * own.compose_rank + tokens * a.n_heads * own.compose_rank * 2;
      }
    }
    const std::int64_t stages = stages_of(a);
    return StaticMap::paper(a, z) + PaperTerms{.macs = sides.macs * stages, .memory = sides.memory * stages};
  }

  // Factors of the key side, per stage: 2 R H for the low-rank map and H for the gates (10 H with R = 2).
  Exact cache_elements(const AttentionOptions& a) const override { return factors(a, "key") * stages_of(a); }

 private:
  bool has_map(const AttentionOptions& a) const override { return a.of<CompositionOptions>().compose_static; }

  // Returns the elements of one token's factors.
  static Exact factors(const AttentionOptions& a, const char* side) {
    const auto& own = a.of<CompositionOptions>();
    return Exact(a.n_heads) * ((own.has_low_rank(side) ? 2 * own.compose_rank : 0) + (own.has_gates(side) ? 1 : 0));
  }

  // Returns the elements of the tensors that compute the factors, which are also the MACs per token: d I groups + 2 R I
  // H with I = 2 R m for a low-rank map, d H for gates.
  static Sizes factor_tensors(const AttentionOptions& a, Exact d, const char* side) {
    const auto& own = a.of<CompositionOptions>();
    const Exact hidden = Exact(2) * own.compose_rank * heads_of_group(a);
    Sizes all;
    if (own.has_low_rank(side)) {
      all = {hidden * own.compose_groups * d, hidden * a.n_heads * own.compose_rank * 2};
    }
    if (own.has_gates(side)) {
      all.push_back(d * a.n_heads);
    }
    return all;
  }
};

const Registration<NoComposition> kNoComposition("none", "not at all");
const Registration<StaticMap> kStaticMap("static", "by a fixed learned map");
const Registration<DynamicMaps> kDynamicMaps("dynamic", "by maps computed per token (DCMHA)");

}  // namespace
}  // namespace headroom::config
