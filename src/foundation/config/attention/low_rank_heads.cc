// Projections whose keys and values of all heads come from a few numbers per token.
//
// projection = "latent": multi-head latent attention (DeepSeek-V2). The keys and values of all heads are computed from
// one small vector per token, and all heads share one rotated key. Decoding caches only these two vectors. With
// latent_groups the vector has several parts (grouped latent attention), each for an equal share of the heads.
//
// Symbols in addition to those of attention_part.h: r = kv_rank, g = latent_groups, q = q_rank, p = rotating channels,
// n = e - p other channels.
#include <algorithm>

#include "foundation/config/checker.h"
#include "headroom/config/part_options.h"
#include "shared.h"

namespace headroom::config {
namespace {

class LatentHeads : public ProjectionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<LatentOptions>();
    detail::describe_ranks(fields, o);
    detail::add_strict(fields, "d_rotary", own.d_rotary, between(0, 65536),
                       "latent: rotating channels of each head, whose keys all heads share; 0: half of d_head");
    detail::add_strict(fields, "d_value", own.d_value, between(0, 65536), "latent: channels of a value; 0: d_head");
    detail::add_strict(fields, "latent_groups", own.latent_groups, between(1, 65536),
                       "latent: equal parts of the kv_rank channels, each read by as many neighbouring heads; divides "
                       "kv_rank and n_heads");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string projection = detail::setting("projection", a.projection);
    const std::int64_t p = rotary_channels(a);
    check.require(p >= 2 && p % 2 == 0 && p < a.d_head, "d_rotary",
                  "must be even, at least 2 and below d_head = {}, got {}", a.d_head, p);
    check.require(a.of<PositionOptions>().rope_fraction == 1.0, "rope_fraction",
                  "must be 1 with {}, where d_rotary determines the rotating channels", projection);
    check.require(a.n_kv_heads == 0 || a.n_kv_heads == a.n_heads, "n_kv_heads",
                  "must be 0 with {}, where each head has its own keys and values, got {}", projection, a.n_kv_heads);
    const std::int64_t groups = own(a).latent_groups;
    check.require(own(a).kv_rank % groups == 0 && a.n_heads % groups == 0, "latent_groups",
                  "must divide kv_rank = {} and n_heads = {}, got {}", own(a).kv_rank, a.n_heads, groups);
    check.require(!a.bias, "bias", "must be false with {}, which merges matrices when decoding", projection);
    check.require(!a.qk_norm, "qk_norm", "must be false with {}, which normalises latents instead of keys", projection);
    check.require(a.score->is_bilinear(), "score",
                  "must be \"dot\" or another score of dot products with {}, which moves the key matrix to the queries "
                  "when decoding, got \"{}\"",
                  projection, name_of(a.score));
    check.require(!a.position->has_offsets(), "position",
                  "must not be \"{}\" with {}, whose queries have the width of the latents when decoding",
                  name_of(a.position), projection);
  }

  std::vector<Example> examples() const override {
    return {
        {"latent", [](AttentionOptions& o) { o.of<LatentOptions>().kv_rank = 3; }},
        {"latent, queries as well",
         [](AttentionOptions& o) { o.of<LatentOptions>() = {.kv_rank = 5, .q_rank = 3, .d_rotary = 2, .d_value = 3}; }},
        {"latent, two groups",
         [](AttentionOptions& o) { o.of<LatentOptions>() = {.kv_rank = 6, .latent_groups = 2}; }}};
  }

  std::int64_t kv_heads(const AttentionOptions& a) const override { return a.n_heads; }
  std::int64_t value_width(const AttentionOptions& a) const override {
    return own(a).d_value > 0 ? own(a).d_value : a.d_head;
  }
  std::int64_t rotary_channels(const AttentionOptions& a) const override {
    return own(a).d_rotary > 0 ? own(a).d_rotary : a.d_head / 4 * 2;
  }
  bool has_latent() const override { return true; }
  bool has_head_matrices() const override { return false; }
  bool starts_truncated() const override { return true; }

  // MACs: all matrices for T tokens. Floats: the latents, q, k, v and o of T tokens.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact heads = (Exact(a.d_head) + value_width(a)) * 2 * a.n_heads;
    return {.macs = z.t * (queries_and_output(a, z.d) + z.d * latents(a) + keys_and_values(a)),
            .memory = z.t * (heads + own(a).q_rank + latents(a))};
  }
  PaperTerms paper_positions(const AttentionOptions&, const PaperSizes&) const override { return {}; }

  std::string heads_text(const AttentionOptions& a) const override {
    return own(a).latent_groups == 1
               ? fmt::format("{} (latent {})", a.n_heads, own(a).kv_rank)
               : fmt::format("{} (latents {} x {})", a.n_heads, own(a).latent_groups, rank_of_group(a));
  }
  std::int64_t d_head_step() const override { return 1; }
  std::int64_t least_d_head(const AttentionOptions& a) const override {
    return own(a).d_rotary > 0 ? own(a).d_rotary + 1 : 4;
  }

 private:
  static const LatentOptions& own(const AttentionOptions& a) { return a.of<LatentOptions>(); }
  static std::int64_t rank_of_group(const AttentionOptions& a) { return own(a).kv_rank / own(a).latent_groups; }
  // d q + q H e (or d H e if uncompressed), plus H w d.
  Exact queries_and_output(const AttentionOptions& a, Exact d) const {
    const Exact made_of = own(a).q_rank > 0 ? Exact(own(a).q_rank) : d;
    return (own(a).q_rank > 0 ? d * own(a).q_rank : 0) + made_of * a.n_heads * a.d_head +
           d * a.n_heads * value_width(a);
  }
  // r + p.
  Exact latents(const AttentionOptions& a) const { return Exact(own(a).kv_rank) + rotary_channels(a); }
  // (r/g) H (n + w).
  Exact keys_and_values(const AttentionOptions& a) const {
    return Exact(rank_of_group(a)) * a.n_heads * (Exact(a.d_head - rotary_channels(a)) + value_width(a));
  }
};

const Registration<LatentHeads> kLatentHeads("latent", "keys and values of all heads from one latent (MLA)");

// projection = "factored": tensor product attention (TPA). A token's keys of all heads are an H x e matrix of rank
// kv_rank, a product of two factors that are linear in the token; so are its values and, with q_rank, its queries.
// Decoding caches the factors.
//
// Symbols in addition to those of attention_part.h: R = kv_rank, q = q_rank.
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
