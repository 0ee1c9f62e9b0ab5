// Builds the names, tensors and bounds of attention's cases.
#include "attention_cases.h"

#include <array>
#include <cmath>

namespace headroom::ops {
namespace {

HeadMap head_map(const AttentionCase& z, const Draw& draw) {
  const ComposedCase& c = *z.composed;
  HeadMap map{.n_groups = c.groups, .skip = c.skip, .fixed = {}, .query = {}, .key = {}};
  if (c.fixed) {
    map.fixed = draw.parameter({c.groups, z.h / c.groups, z.h / c.groups}, 0.3);
  }
  for (const bool query : {true, false}) {
    HeadMapSide& side = query ? map.query : map.key;
    side.rank = (query ? c.low_query : c.low_key) ? c.rank : 0;
    side.has_gate = query ? c.gate_query : c.gate_key;
    if (const std::int64_t per_head = 2 * side.rank + (side.has_gate ? 1 : 0); per_head > 0) {
      side.factors = draw.activation({z.b, query ? z.t : z.s, per_head * z.h}, 0.5);
    }
  }
  return map;
}

Mixture mixture_of(const AttentionCase& z, const Draw& draw) {
  const MixtureCase& c = *z.mixture;
  Mixture mixture;
  for (std::int64_t r = 1; c.keys == MixtureCase::own && r < c.n; ++r) {
    mixture.more_keys.push_back(draw.activation({z.b, z.g, z.s, z.e}));
  }
  if (c.keys != MixtureCase::own) {
    mixture.shift = draw.parameter({c.n, z.g, c.keys == MixtureCase::shifted ? 1 : z.s, z.e});
  }
  if (c.prior != MixtureCase::none) {
    const at::Tensor prior = at::rand({c.n, z.g, c.prior == MixtureCase::one ? 1 : z.s}).add(0.2);
    mixture.prior = draw.placed(prior, draw.parameter_type());
  }
  if (c.coefficient > 0.0) {
    mixture.coefficient = (at::arange(1, c.n + 1, draw.setting.device) * c.coefficient).to(draw.parameter_type());
  }
  mixture.epsilon = c.epsilon;
  mixture.maximum = c.maximum;
  return mixture;
}

ScoreFormula formula_of(const AttentionCase& z, const Draw& draw) {
  constexpr std::int64_t kTable = 19;
  const FormulaCase& c = *z.formula;
  ScoreFormula to{.score = c.score,
                  .mask = c.mask,
                  .normalise = c.normalise,
                  .queries_last = c.queries_last,
                  .first_key = c.first_key};
  const auto reads = [&](const char* name) { return c.score.find(name) != std::string::npos; };
  if (reads("learned0")) {
    to.learned = {draw.parameter({z.h})};
  }
  if (reads("table0")) {
    to.tables = {draw.parameter({c.shared ? 1 : z.b, c.shared ? 1 : z.h, kTable})};
  }
  if (reads("token0")) {
    to.tokens = {draw.parameter({z.b, c.shared ? 1 : z.h, z.s})};
  }
  return to;
}

template <class Body>
void for_leaves(AttentionInputs& in, const Body& body) {
  body(in.q);
  body(in.k);
  body(in.v);
  const auto maybe = [&](std::optional<at::Tensor>& t) {
    if (t) {
      body(*t);
    }
  };
  maybe(in.q_position);
  maybe(in.r);
  maybe(in.bias);
  maybe(in.query_bias);
  maybe(in.key_bias);
  maybe(in.sink);
  if (in.mixture) {
    std::for_each(in.mixture->more_keys.begin(), in.mixture->more_keys.end(), body);
    maybe(in.mixture->shift);
    maybe(in.mixture->prior);
  }
  for (std::vector<at::Tensor>* read : {&in.formula.learned, &in.formula.tables, &in.formula.tokens}) {
    std::for_each(read->begin(), read->end(), body);
  }
  for (std::optional<HeadMap>* map : {&in.pre, &in.post}) {
    if (*map) {
      maybe((*map)->fixed);
      for (HeadMapSide* side : {&(*map)->query, &(*map)->key}) {
        if (side->factors.defined()) {
          body(side->factors);
        }
      }
    }
  }
}

std::string name_of(const BiasCase& c) {
  return fmt::format(" bias of {}{}",
                     c.by_token    ? "queries and keys"
                     : c.per_query ? "pairs"
                                   : "keys",
                     c.per_batch ? "" : " for the whole batch");
}

std::string name_of(const ComposedCase& c) {
  std::string name = fmt::format(" composed{}{}", c.pre ? " pre" : "", c.post ? " post" : "");
  for (const auto& [has, part] : {std::pair{c.fixed, " fixed"},
                                  {c.low_query, " low query"},
                                  {c.low_key, " low key"},
                                  {c.gate_query, " gate query"},
                                  {c.gate_key, " gate key"},
                                  {!c.skip, " without skip"}}) {
    name += has ? part : "";
  }
  return name + fmt::format(" groups {} rank {}", c.groups, c.rank);
}

std::string name_of(const MixtureCase& c) {
  constexpr std::array kKeys = {"own", "shifted", "shifted by position"};
  constexpr std::array kPriors = {"", " one prior", " prior"};
  return fmt::format(" mixture {} of {} keys c {}{} epsilon {}{}", c.n, kKeys[c.keys], c.coefficient, kPriors[c.prior],
                     c.epsilon, c.maximum ? " best" : "");
}

std::string name_of(const FormulaCase& c) {
  return fmt::format(" formula {} mask {}{}{}{}", c.score, c.mask, c.normalise ? "" : " without softmax",
                     c.shared ? " shared" : "", c.queries_last ? "" : " both from 0");
}

}  // namespace

std::string AttentionCase::name() const {
  constexpr std::array kPaddings = {"", " holes", " blind"};
  return fmt::format("B{} H{} G{} T{} S{} e{}{}{}{}{}{}{}{}{}{}{}{}{}", b, h, g, t, s, e,
                     w > 0 ? fmt::format(" w{}", w) : "", causal ? "" : " both ways",
                     window > 0 ? fmt::format(" window {}", window) : "", kPaddings[padding],
                     relative ? " relative" : "", composed ? name_of(*composed) : "", mixture ? name_of(*mixture) : "",
                     sink ? " sink" : "", bias ? name_of(*bias) : "", formula ? name_of(*formula) : "",
                     role == Role::bfloat16 ? " bfloat16" : "", ops::name_of(layout));
}

AttentionInputs AttentionCase::inputs(const Setting& setting) const {
  const Draw draw{setting, layout};
  AttentionInputs in{.q = draw.activation({b, h, t, e}),
                     .k = draw.activation({b, g, s, e}),
                     .v = draw.activation({b, g, s, d_value()}),
                     .scale = 0.7 / std::sqrt(static_cast<double>(e)),
                     .mask = {.causal = causal, .window = window, .valid_keys = {}}};
  if (padding == holes) {
    in.mask.valid_keys = at::arange(s, setting.device).remainder(3).ne(1).expand({b, s});
  } else if (padding == blind) {
    in.mask.valid_keys = at::arange(b * s, setting.device).view({b, s}).remainder(3).ne(1);
    in.mask.valid_keys->narrow(1, 0, 2).fill_(false);
  }
  if (relative) {
    in.q_position = draw.activation({b, h, t, e});
    in.r = draw.activation({h, causal ? s : s + t - 1, e});
  }
  if (mixture) {
    in.mixture = mixture_of(*this, draw);
  }
  if (composed && composed->pre) {
    in.pre = head_map(*this, draw);
  }
  if (composed && composed->post) {
    in.post = head_map(*this, draw);
  }
  if (sink) {  // about as large as the scores
    in.sink = draw.parameter({h}, 2.0);
  }
  if (formula) {
    in.formula = formula_of(*this, draw);
  }
  if (bias && bias->by_token) {
    in.query_bias = draw.parameter({bias->per_batch ? b : 1, h, t});
    in.key_bias = draw.parameter({bias->per_batch ? b : 1, h, s});
  } else if (bias) {
    in.bias = draw.activation({bias->per_batch ? b : 1, h, bias->per_query ? t : 1, s});
  }
  return in;
}

Problem AttentionCase::problem(const Setting& setting) const {
  const AttentionInputs in = inputs(setting);
  return {leaves_of(in), [in](const std::vector<at::Tensor>& leaves, Implementation implementation) {
            return attention(with_leaves(in, leaves), implementation);
          }};
}

// Scores sum e <= 41 products of size ~1. An error of about 41 * 2^-24 in a score is the same relative error in a
// probability, and gradients sum S <= 200 of them. Composition sums over up to 16 heads. A mixture's squared distances,
// of size 2 e, are differences with an error of up to 2 e * 2^-24 * 4 before exp(). With relative positions, a score
// has two dot products. In bfloat16, results, probabilities and the gradients of scores are rounded to 8 bits, and the
// backward pass reads the rounded result. The gradient of a mixture's prior sums these errors over all pairs. The
// gradients of a formula's tensors are sums over all pairs, most of which cancel.
std::vector<Precision> AttentionCase::precisions() const {
  if (role == Role::bfloat16) {
    return {{at::kBFloat16, (mixture ? 48.0 : 6.0) / 256}};
  }
  const bool more = composed || mixture;
  return {{at::kFloat,
           1e-5 * (1.0 + (composed ? 1.0 : 0.0) + (mixture || formula ? 2.0 : 0.0) + (more && relative ? 1.0 : 0.0))}};
}

std::vector<at::Tensor> leaves_of(AttentionInputs in) {
  std::vector<at::Tensor> all;
  for_leaves(in, [&](const at::Tensor& t) { all.push_back(t); });
  return all;
}

AttentionInputs with_leaves(AttentionInputs in, const std::vector<at::Tensor>& leaves) {
  auto next = leaves.begin();
  for_leaves(in, [&](at::Tensor& t) { t = *next++; });
  return in;
}

}  // namespace headroom::ops
