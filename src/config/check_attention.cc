#include <cmath>

#include "checker.h"
#include "windows.h"

namespace headroom::config::detail {
namespace {

void check_heads(const Checker& check, const AttentionOptions& a) {
  if (a.projection == Projection::routed_heads) {
    check.require(a.n_kv_heads <= 1 || a.n_kv_heads == a.n_heads, "n_kv_heads",
                  "must be 0 or 1 with {}, whose heads share one key and one value, got {}",
                  setting("projection", a.projection), a.n_kv_heads);
    return;
  }
  check.require(a.kv_heads() <= a.n_heads && a.n_heads % a.kv_heads() == 0, "n_kv_heads",
                "must divide n_heads = {}, got {}", a.n_heads, a.n_kv_heads);
}

void check_routed_heads(const Checker& check, const AttentionOptions& a) {
  const std::string projection = setting("projection", a.projection);
  check.require(a.top_k <= a.n_experts, "top_k", "must be at most n_experts = {}, got {}", a.n_experts, a.top_k);
  check.require(a.top_k == a.n_heads, "top_k", "must equal n_heads = {} with {}, got {}", a.n_heads, projection,
                a.top_k);
  check.require(a.gate != Gate::softmax_top_k, "gate",
                "must be \"sigmoid\", \"softmax\" or \"softmax_renormalised\" with {}, got \"{}\"", projection,
                name_of(a.gate));
  check.require(!a.shared_selection, "shared_selection", "needs projection = \"experts\": routed heads select once");
}

void check_expert_banks(const Checker& check, const AttentionOptions& a) {
  const std::string projection = setting("projection", a.projection);
  check.require(a.top_k <= a.n_experts, "top_k", "must be at most n_experts = {}, got {}", a.n_experts, a.top_k);
  const bool over_all = a.gate == Gate::softmax || a.gate == Gate::softmax_renormalised;
  check.require(!over_all, "gate", "must be \"sigmoid\" or \"softmax_top_k\" with {}, got \"{}\"", projection,
                name_of(a.gate));
  check.require(!a.experts.empty(), "experts", "must name at least one of \"q\", \"k\", \"v\", \"o\" with {}",
                projection);
  check.require_distinct("experts", a.experts);
  check.require(!a.selects_source() || a.kv_heads() == a.n_heads, "n_kv_heads",
                "must be n_heads = {} when keys or values are experts, because each head chooses its own, got {}",
                a.n_heads, a.n_kv_heads);
}

void check_projection(const Checker& check, const AttentionOptions& a) {
  check.require(a.projection == Projection::routed_heads || !a.noisy_routing, "noisy_routing",
                "needs projection = \"routed_heads\", not \"{}\"", name_of(a.projection));
  switch (a.projection) {
    case Projection::dense:
      check.require(!a.shared_selection, "shared_selection", "needs projection = \"experts\", not \"dense\"");
      return;
    case Projection::experts:
      return check_expert_banks(check, a);
    case Projection::routed_heads:
      return check_routed_heads(check, a);
    case Projection::gated_heads:
      check.require(a.top_k <= a.n_heads, "top_k", "must be at most n_heads = {} with {}, got {}", a.n_heads,
                    setting("projection", a.projection), a.top_k);
      check.require(!a.shared_selection, "shared_selection",
                    "needs projection = \"experts\": gated heads select on the query's side only");
      return;
  }
}

void check_mixture(const Checker& check, const AttentionOptions& a) {
  const std::size_t n = a.mixture_coefficients.size();
  const auto components = static_cast<std::size_t>(a.key_components());
  check.require(n == 0 || (a.mixture_score == MixtureScore::gaussian && n == components), "mixture_coefficients",
                "must be empty or have one number for each of the {} Gaussian keys, got {}", components, n);
  check.require(a.mixing == Mixing::sum || a.mixture_epsilon == 0.0, "mixture_epsilon",
                "needs mixing = \"sum\": \"max\" has no sum of weights to add it to");
  check.require(a.prior_update != PriorUpdate::soft_e || a.has_prior(), "prior_update",
                "\"soft_e\" needs mixing = \"sum\", a prior and several keys at each position");
}

void check_linear(const Checker& check, const AttentionOptions& a, std::string_view score) {
  check.require(a.composition == Composition::none, "composition",
                "must be \"none\" with {}, which never has the scores that heads would mix", score);
  check.require(a.position != Position::relative, "position",
                "must not be \"relative\" with {}, which never has the scores that positions add to", score);
  check.require(a.window == 0, "window", "must be 0 with {}, which sums over all keys", score);
  check.require(a.scale == Scale::inv_sqrt, "scale",
                "must be \"inv_sqrt\" (unused) with {}, whose score_scale and output_scale are factors of their own",
                score);
  check.require(a.prior_update != PriorUpdate::soft_e, "prior_update",
                "\"soft_e\" needs score = \"gaussian_mixture\", whose keys take a share of each pair");
}

void check_score(const Checker& check, const AttentionOptions& a) {
  check.require(a.score != Score::dot || a.keys == Keys::own, "keys",
                "\"{}\" needs score = \"gaussian_mixture\" or \"linear\", not \"dot\"", name_of(a.keys));
  const auto needs_mixture = [&](bool unset, std::string_view key, std::string_view value) {
    check.require(a.is_mixture() || unset, key, "{} needs score = \"gaussian_mixture\", not \"{}\"", value,
                  name_of(a.score));
  };
  needs_mixture(a.mixing == Mixing::sum, "mixing", "\"max\"");
  needs_mixture(a.mixture_score == MixtureScore::gaussian, "mixture_score", "\"dot\"");
  needs_mixture(a.mixture_coefficients.empty(), "mixture_coefficients", "a list of numbers");
  needs_mixture(a.mixture_epsilon == 0.0, "mixture_epsilon", "a number above 0");
  check.require(a.keys != Keys::single || a.prior == Prior::none || a.prior == AttentionOptions().prior, "prior",
                "\"{}\" needs several keys at each position, not keys = \"single\"", name_of(a.prior));
  if (a.is_mixture()) {
    check_mixture(check, a);
  } else if (a.score == Score::linear) {
    check_linear(check, a, setting("score", a.score));
  } else {
    check.require(a.prior_update != PriorUpdate::soft_e, "prior_update",
                  "\"soft_e\" needs score = \"gaussian_mixture\", not \"dot\"");
  }
}

void check_composition(const Checker& check, const AttentionOptions& a) {
  if (a.composition == Composition::none) {
    check.require(!a.compose_static, "compose_static", "needs composition = \"dynamic\", not \"none\"");
    check.require(a.compose_skip, "compose_skip", "must be true with composition = \"none\"");
    return;
  }
  const std::string composition = setting("composition", a.composition);
  check.require(a.projection != Projection::routed_heads, "composition",
                "must be \"none\" with projection = \"routed_heads\", whose heads differ from token to token");
  check.require(!a.compose.empty(), "compose", "must name \"pre\", \"post\" or both with {}", composition);
  check.require_distinct("compose", a.compose);
  check.require(a.n_heads % a.compose_groups == 0, "compose_groups", "must divide n_heads = {}, got {}", a.n_heads,
                a.compose_groups);
  if (a.composition == Composition::dynamic) {
    check.require(!a.compose_low_rank.empty() || !a.compose_gates.empty(), "compose_low_rank",
                  "must not be empty together with compose_gates with {}, nothing would depend on the tokens",
                  composition);
    check.require_distinct("compose_low_rank", a.compose_low_rank);
    check.require_distinct("compose_gates", a.compose_gates);
  }
}

void check_position(const Checker& check, const AttentionOptions& a, std::int64_t memory_length) {
  check.require(!a.position_bias || a.position == Position::relative, "position_bias",
                "needs position = \"relative\", not \"{}\"", name_of(a.position));
  check.require(a.position != Position::learned || memory_length == 0, "position",
                "must not be \"learned\" with memory_length = {}: its table ends with the context", memory_length);
  check.require(a.score != Score::linear || a.position != Position::rope || memory_length == 0, "position",
                "must not be \"rope\" with score = \"linear\" and memory_length = {}: feature maps do not keep "
                "rotations, so keys of the memory would change when their positions do",
                memory_length);
  if (a.position == Position::rope) {
    // As rope_channels(), before it is made even.
    const auto channels = static_cast<std::int64_t>(a.rope_fraction * static_cast<double>(a.d_head) + 1e-9);
    check.require(
        channels >= 2 && channels % 2 == 0, "rope_fraction",
        "d_head = {} with rope_fraction = {} makes {} rotating channel{}, they must be pairs: change d_head or "
        "rope_fraction",
        a.d_head, a.rope_fraction, channels, channels == 1 ? "" : "s");
  }
  check.require(parse_window_pattern(a.window_pattern).has_value(), "window_pattern",
                "must be local:global layers such as \"1:0\", \"1:1\" or \"3:1\", got \"{}\"", a.window_pattern);
  check.require(a.window > 0 || a.window_pattern == AttentionOptions().window_pattern, "window",
                "must be above 0 for the local layers of window_pattern = \"{}\"", a.window_pattern);
}

}  // namespace

void check_attention(const ModelOptions& model, std::string_view origin) {
  const Checker check(origin, "model.attention");
  const AttentionOptions& a = model.attention;
  check_heads(check, a);
  check_projection(check, a);
  check_score(check, a);
  check_composition(check, a);
  check_position(check, a, model.memory_length);
}

}  // namespace headroom::config::detail
