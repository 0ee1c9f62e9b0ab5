// projection = "latent": the keys and values of all heads are computed from one small vector per token, which is what
// decoding keeps, and of a rotating key that all heads share (multi-head latent attention, DeepSeek-V2).
//
// Symbols besides those of attention_part.h: r kv_rank, q q_rank, p channels that rotate, n = e - p those that do not.
#include "foundation/config/checker.h"
#include "headroom/config/attention_part.h"

namespace headroom::config {
namespace {

class LatentHeads : public ProjectionPart {
 public:
  std::string_view name() const override { return "latent"; }
  std::string_view about() const override { return "keys and values of all heads from one latent (MLA)"; }

  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("kv_rank", o.kv_rank, between(1, 65536),
               "latent: channels of the vector that a token's keys and values are computed from");
    fields.add("q_rank", o.q_rank, between(0, 65536),
               "latent: the same for its queries; 0: they are computed from the token itself");
    fields.add("d_rotary", o.d_rotary, between(0, 65536),
               "latent: first channels of each head, which rotate and whose keys all heads share; 0: half of d_head");
    fields.add("d_value", o.d_value, between(0, 65536), "latent: channels of a value; 0: d_head");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string projection = detail::setting("projection", a.projection);
    const std::int64_t p = rotary_channels(a);
    check.require(p >= 2 && p % 2 == 0 && p < a.d_head, "d_rotary",
                  "must be pairs of channels and leave some of d_head = {} to keys computed from the latent, got {}",
                  a.d_head, p);
    check.require(a.rope_fraction == 1.0, "rope_fraction", "must be 1 with {}, whose d_rotary says what rotates",
                  projection);
    check.require(a.n_kv_heads == 0 || a.n_kv_heads == a.n_heads, "n_kv_heads",
                  "must be 0 with {}, each head of which computes its own keys and values from the latent, got {}",
                  projection, a.n_kv_heads);
    check.require(!a.bias, "bias", "must be false with {}, whose matrices are multiplied together while decoding",
                  projection);
    check.require(!a.qk_norm, "qk_norm",
                  "must be false with {}, whose latents are normalised before any head's keys are computed",
                  projection);
    check.require(
        a.score->is_bilinear(), "score",
        "must be \"dot\" or another score of dot products with {}, whose decoding multiplies the keys' matrix "
        "into the queries, got \"{}\"",
        projection, name_of(a.score));
    check.require(a.position->offsets({.queries = 1, .sources = 1}).value() == 0, "position",
                  "must not be \"{}\" with {}, whose queries have the latents' width while decoding",
                  name_of(a.position), projection);
  }

  void check_absent(const detail::Checker& check, const AttentionOptions& a) const override {
    const auto needs_latent = [&](bool unset, std::string_view key) {
      check.require(unset, key, "needs projection = \"latent\", not \"{}\"", name_of(a.projection));
    };
    needs_latent(a.kv_rank == AttentionOptions().kv_rank, "kv_rank");
    needs_latent(a.q_rank == 0, "q_rank");
    needs_latent(a.d_rotary == 0, "d_rotary");
    needs_latent(a.d_value == 0, "d_value");
  }

  std::vector<Example> examples() const override {
    return {{"latent", [](AttentionOptions& o) { o.kv_rank = 3; }},
            {"latent, queries as well", [](AttentionOptions& o) {
               o.kv_rank = 5;
               o.q_rank = 3;
               o.d_rotary = 2;
               o.d_value = 3;
             }}};
  }

  std::int64_t kv_heads(const AttentionOptions& a) const override { return a.n_heads; }
  std::int64_t position_heads(const AttentionOptions& a) const override { return a.n_heads; }
  std::int64_t all_heads(const AttentionOptions& a) const override { return a.n_heads; }
  std::int64_t value_width(const AttentionOptions& a) const override { return a.d_value > 0 ? a.d_value : a.d_head; }
  std::int64_t rotary_channels(const AttentionOptions& a) const override {
    return a.d_rotary > 0 ? a.d_rotary : a.d_head / 4 * 2;
  }
  bool has_latent() const override { return true; }
  bool starts_truncated() const override { return true; }
  bool is_bank(const AttentionOptions&, char) const override { return false; }
  bool has_fixed_heads() const override { return true; }

  // q's, d q and q H e, or d H e; d r, d p, r H n, r H w; H w d.
  Sizes matrices(const AttentionOptions& a, Exact d) const override {
    const Exact heads = a.n_heads, r = a.kv_rank, p = rotary_channels(a), values = heads * value_width(a);
    const Exact made_of = a.q_rank > 0 ? Exact(a.q_rank) : d;
    const Sizes all = {made_of * heads * a.d_head,         d * r,      d * p,
                       r * heads * (a.d_head - p.value()), r * values, values * d};
    return all + Sizes(a.q_rank > 0 ? 1 : 0, d * a.q_rank);
  }
  // The gains of the latents' norms.
  Sizes other_tensors(const AttentionOptions& a, Exact) const override {
    return Sizes{a.kv_rank} + Sizes(a.q_rank > 0 ? 1 : 0, a.q_rank);
  }

  // Each matrix once a token: those of queries and output T times, those of keys and values S times.
  ProjectionProducts products(const AttentionOptions& a, Exact d, const Span& span) const override {
    return {.projections =
                span.queries * queries_and_output(a, d) + span.sources * (latents(a, d) + keys_and_values(a))};
  }
  // The matrices T times; numbers: the latents, q, k, v and o of T tokens.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact heads = (Exact(a.d_head) + value_width(a)) * 2 * a.n_heads;
    return {.macs = z.t * sum_of(matrices(a, z.d)), .memory = z.t * (heads + a.q_rank + cache_numbers(a))};
  }
  PaperTerms paper_positions(const AttentionOptions&, const PaperSizes&) const override { return {}; }
  Exact cache_numbers(const AttentionOptions& a) const override { return Exact(a.kv_rank) + rotary_channels(a); }
  std::vector<BalanceLoss> balance_losses(const AttentionOptions&) const override { return {}; }

  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} (latent {})", a.n_heads, a.kv_rank);
  }
  std::int64_t d_head_step() const override { return 1; }
  std::int64_t least_d_head(const AttentionOptions& a) const override { return a.d_rotary > 0 ? a.d_rotary + 1 : 4; }
  void set_heads(AttentionOptions& a, std::int64_t n_heads) const override { a.n_heads = n_heads; }
  std::vector<AttentionOptions> trials(const AttentionOptions&, std::int64_t) const override { return {}; }

 private:
  // d q + q H e, or d H e; H w d.
  Exact queries_and_output(const AttentionOptions& a, Exact d) const {
    const Exact made_of = a.q_rank > 0 ? Exact(a.q_rank) : d;
    return (a.q_rank > 0 ? d * a.q_rank : 0) + made_of * a.n_heads * a.d_head + d * a.n_heads * value_width(a);
  }
  // d (r + p).
  Exact latents(const AttentionOptions& a, Exact d) const { return d * cache_numbers(a); }
  // r H (n + w).
  Exact keys_and_values(const AttentionOptions& a) const {
    return Exact(a.kv_rank) * a.n_heads * (Exact(a.d_head - rotary_channels(a)) + value_width(a));
  }
};

const Registration<LatentHeads> kLatentHeads;

}  // namespace
}  // namespace headroom::config
