#include "key_mixture.h"

#include "foundation/config/checker.h"

namespace headroom::config::detail {

void describe_key_mixture(Fields& fields, AttentionOptions& o) {
  if (fields.has("n_mixtures")) {
    return;
  }
  fields.add(
      "keys", o.keys,
      "gaussian_mixture, linear: components have own projections, shifted copies of one projection, or there is a "
      "single one");
  fields.add("n_mixtures", o.n_mixtures, between(1, 1024), "mixture components, keys at each position");
  fields.add("prior", o.prior, "components' weights: equal (none), per layer, per head, or per head and key position");
  fields.add("prior_update", o.prior_update,
             "how the prior is learned: fixed (none), by gradient, or from responsibilities (soft_e)");
  fields.add("prior_clamp", o.prior_clamp, "keep a prior learned by gradient between 0 and 1");
  fields.add("shift_deviation", o.shift_deviation, at_least(0),
             "keys = shifted: initial standard deviation of the shifts (the first one is 0)");
}

void check_no_key_mixture(const Checker& check, const AttentionOptions& a) {
  check.require(a.keys == Keys::own, "keys", "\"{}\" needs score = \"gaussian_mixture\" or \"linear\", not \"{}\"",
                name_of(a.keys), name_of(a.score));
}

void check_prior(const Checker& check, const AttentionOptions& a) {
  check.require(a.keys != Keys::single || a.prior == Prior::none || a.prior == AttentionOptions().prior, "prior",
                "\"{}\" needs several keys at each position, not keys = \"single\"", name_of(a.prior));
}

Sizes key_mixture_tensors(const AttentionOptions& a, Exact sources) {
  const Exact components = a.key_components(), kv = a.computed_kv_heads();
  Sizes all;
  if (a.keys == Keys::shifted) {
    all.push_back(components * kv * a.d_head);
  }
  if (a.has_prior() && a.prior_update == PriorUpdate::gradient) {
    all.push_back(components * (a.prior == Prior::layer ? 1 : a.prior == Prior::head ? kv : kv * sources));
  }
  return all;
}

PaperTerms more_keys(const AttentionOptions& a, const PaperSizes& z) {
  const Exact one_key = z.t * a.computed_kv_heads() * a.d_head;
  const Exact work = a.has_experts('k') ? (z.d + 1) * a.top_k : z.d;
  return {.macs = one_key * (a.key_projections() - 1) * work, .memory = one_key * (a.key_components() - 1)};
}

}  // namespace headroom::config::detail
