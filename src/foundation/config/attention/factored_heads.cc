// projection = "factored": tensor product attention (TPA). A token's keys of all heads are an H x e matrix of rank
// kv_rank, a product of two factors that are linear in the token; so are its values and, with q_rank, its queries.
// Decoding caches the factors.
//
// Symbols in addition to those of attention_part.h: R = kv_rank, q = q_rank.
#include <algorithm>

#include "foundation/config/checker.h"
#include "headroom/config/attention/projection_options.h"
#include "shared.h"

namespace headroom::config {
namespace {

class FactoredHeads : public detail::HeadProjections {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override { detail::describe_ranks(fields, o); }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string projection = detail::setting("projection", a.projection);
    const std::int64_t highest = std::min(a.n_heads, a.d_head);
    check.require(
        own(a).kv_rank <= highest, "kv_rank",
        "must be at most {} with {}, the lower one of n_heads and d_head: a token's keys have no higher rank, got {}",
        highest, projection, own(a).kv_rank);
    check.require(a.n_kv_heads == 0 || a.n_kv_heads == a.n_heads, "n_kv_heads",
                  "must be 0 with {}, where each head has its own keys and values, got {}", projection, a.n_kv_heads);
    check.require(!a.bias, "bias", "must be false with {}, whose factors have no biases", projection);
    check.require(!a.qk_norm, "qk_norm", "must be false with {}, which caches factors instead of keys", projection);
    check.require(a.key_projections() == 1, "keys",
                  "must be \"shifted\" or \"single\" with {}, which has one key per position", projection);
  }

  std::vector<Example> examples() const override {
    return {{"factored", [](AttentionOptions& o) { o.of<LatentOptions>().kv_rank = 1; }},
            {"factored, queries as well",
             [](AttentionOptions& o) { o.of<LatentOptions>() = {.kv_rank = 2, .q_rank = 3}; }}};
  }

  std::int64_t kv_heads(const AttentionOptions& a) const override { return a.n_heads; }
  bool has_head_matrices() const override { return false; }
  bool starts_truncated() const override { return true; }

  // MACs: all matrices and products of factors for T tokens. Floats: the factors, q, k, v and o of T tokens.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact factors = own(a).q_rank > 0 ? query_factors(a) : Exact(0);
    const Exact products = product_of(a, own(a).q_rank) + product_of(a, own(a).kv_rank) * 2;
    return {.macs = z.t * (z.d * (query_factors(a) + key_value_factors(a) + Exact(a.n_heads) * a.d_head) + products),
            .memory = z.t * (factors + key_value_factors(a) + Exact(a.n_heads) * a.d_head * 4)};
  }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} (rank {})", a.n_heads, own(a).kv_rank);
  }
  std::int64_t d_head_step() const override { return 1; }
  std::int64_t least_d_head(const AttentionOptions& a) const override { return own(a).kv_rank; }

 private:
  static const LatentOptions& own(const AttentionOptions& a) { return a.of<LatentOptions>(); }
  // The channels that the query matrices compute: q (H + e), or H e if queries are not factored.
  static Exact query_factors(const AttentionOptions& a) {
    return own(a).q_rank > 0 ? (Exact(a.n_heads) + a.d_head) * own(a).q_rank : Exact(a.n_heads) * a.d_head;
  }
  // 2 R (H + e).
  static Exact key_value_factors(const AttentionOptions& a) {
    return Exact(own(a).kv_rank) * 2 * (Exact(a.n_heads) + a.d_head);
  }
  static Exact product_of(const AttentionOptions& a, std::int64_t rank) { return Exact(a.n_heads) * a.d_head * rank; }
};

const Registration<FactoredHeads> kFactoredHeads("factored", "a token's heads as a product of two factors (TPA)");

}  // namespace
}  // namespace headroom::config
