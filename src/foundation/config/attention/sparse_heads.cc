// projection = "sparse_heads": each head selects tokens of the sequence and attends among them (MoSA). Dense heads
// after them attend to all tokens. For encoders only, because later tokens affect the selection.
//
// Symbols in addition to those of attention_part.h: N = n_heads sparse heads, D = dense_heads, H = N + D, k = selected
// tokens.
#include "foundation/config/checker.h"
#include "headroom/config/part_options.h"
#include "shared.h"

namespace headroom::config {
namespace {

class SparseHeads : public ProjectionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<SparseHeadOptions>();
    detail::add_strict(fields, "sparsity", own.sparsity, between(1, 1 << 20),
                       "sparse_heads: each head selects one in this many tokens of the sequence, at least two");
    detail::add_strict(fields, "include_first", own.include_first,
                       "sparse_heads: every head also selects the first token");
    detail::add_strict(fields, "dense_heads", own.dense_heads, between(0, 65536),
                       "sparse_heads: heads after the n_heads sparse ones that attend to all tokens");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string projection = detail::setting("projection", a.projection);
    check.require(
        model.kind != ModelKind::language_model && model.kind != ModelKind::encoder_decoder, "projection",
        "must not be \"{}\" in a model of kind \"{}\", where later tokens would affect the output of earlier ones",
        name_of(a.projection), name_of(model.kind));
    check.require(a.n_kv_heads == 0 || a.n_kv_heads == a.n_heads, "n_kv_heads",
                  "must be 0 with {}, where each head selects its own keys, got {}", projection, a.n_kv_heads);
    check.require(a.score.name() == "dot", "score",
                  "must be \"dot\" with {}, which excludes unselected tokens from a softmax, got \"{}\"", projection,
                  name_of(a.score));
    check.require(a.composition.name() == "none", "composition",
                  "must be \"none\" with {}, whose heads score different tokens, got \"{}\"", projection,
                  name_of(a.composition));
  }

  std::vector<Example> examples() const override {
    return {{"sparse_heads", [](AttentionOptions& o) { o.of<SparseHeadOptions>().sparsity = 2; }},
            {"sparse_heads, dense heads", [](AttentionOptions& o) {
               o.of<SparseHeadOptions>() = {.sparsity = 2, .include_first = true, .dense_heads = 1};
             }}};
  }

  bool routes(const AttentionOptions&) const override { return true; }
  std::int64_t kv_heads(const AttentionOptions& a) const override { return computed_heads(a); }
  std::int64_t computed_heads(const AttentionOptions& a) const override { return a.n_heads + dense(a); }
  std::int64_t position_heads(const AttentionOptions& a) const override { return computed_heads(a); }
  std::int64_t all_heads(const AttentionOptions& a) const override { return computed_heads(a); }

  // 4(Nk + DT)de + NdT MACs, 4(Nk + DT)e + NT floats.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact projected = (chosen(a, z.t) * a.n_heads + z.t * dense(a)) * 4 * a.d_head, selected = z.t * a.n_heads;
    return {.macs = (projected + selected) * z.d, .memory = projected + selected};
  }
  PaperTerms paper_positions(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact projected = z.s * 2 * computed_heads(a) * a.d_head;
    return {.macs = projected * z.d, .memory = projected};
  }
  // Nk^2 + DTS.
  Exact paper_pairs(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact k = chosen(a, z.t);
    return k * k * a.n_heads + z.t * z.s * dense(a);
  }

  bool attends_everywhere() const override { return false; }
  bool starts_truncated() const override { return true; }
  std::string heads_text(const AttentionOptions& a) const override {
    return dense(a) == 0 ? fmt::format("{} sparse", a.n_heads)
                         : fmt::format("{} sparse, {} dense", a.n_heads, dense(a));
  }
  std::int64_t d_head_step() const override { return 1; }

 private:
  static std::int64_t dense(const AttentionOptions& a) { return a.of<SparseHeadOptions>().dense_heads; }
  static Exact chosen(const AttentionOptions& a, Exact tokens) {
    return a.of<SparseHeadOptions>().chosen(tokens.value());
  }
};

const Registration<SparseHeads> kSparseHeads("sparse_heads", "heads that select their tokens, for encoders (MoSA)");

}  // namespace
}  // namespace headroom::config
