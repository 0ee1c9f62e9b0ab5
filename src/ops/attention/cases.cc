#include "ops/attention/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace headroom::ops {
namespace {

// Plain and relative.
const std::vector<AttentionCase> kPlain = {
    {2, 2, 2, 7, 7, 5},
    {1, 4, 2, 5, 11, 3},
    {2, 3, 3, 6, 13, 4, true, 0, AttentionCase::none, true},
    {1, 2, 2, 1, 9, 7, true, 0, AttentionCase::none, true},
    {1, 2, 1, 8, 8, 3, true, 3},
    {2, 2, 2, 5, 12, 3, true, 4, AttentionCase::none, true},
    {1, 2, 2, 4, 6, 5, false},
    {1, 2, 2, 4, 6, 5, false, 0, AttentionCase::none, true},
    {1, 1, 1, 1, 8, 2, true, 3},
    {1, 2, 2, 7, 3, 5, false, 0, AttentionCase::none, true},
    {2, 3, 3, 67, 131, 17},
    {2, 2, 2, 70, 133, 41, true, 0, AttentionCase::none, true},
    {1, 4, 2, 65, 97, 24, true, 29, AttentionCase::none, true},
    {2, 4, 2, 3, 131, 17, true, 0, AttentionCase::none, true},  // few queries, many keys
    {1, 4, 4, 7, 200, 24, true, 90, AttentionCase::none, true},
    {2, 2, 1, 5, 150, 16, false, 0, AttentionCase::none, true},
};

// Of every kind.
const std::vector<AttentionCase> kSizes = {{1, 1, 1, 1, 1, 1},
                                           {2, 4, 2, 17, 17, 5},
                                           {2, 8, 8, 37, 70, 13},
                                           {1, 3, 1, 20, 131, 7, false},
                                           {2, 6, 6, 33, 33, 4, true, 5},
                                           {2, 16, 4, 9, 9, 8},
                                           {2, 8, 8, 40, 40, 6, false, 0, AttentionCase::blind},
                                           {3, 4, 4, 67, 67, 3, true, 0, AttentionCase::blind},
                                           {1, 4, 2, 150, 170, 5, true, 90},
                                           {2, 4, 2, 1, 83, 5},  // few queries, many keys
                                           {1, 8, 4, 7, 140, 11, true, 80},
                                           {2, 6, 6, 5, 70, 16, false, 0, AttentionCase::blind}};

// Whole sequences, as decoding feeds them.
const std::vector<AttentionCase> kSequences = {{2, 4, 2, 83, 83, 13},
                                               {1, 8, 4, 140, 140, 11, true, 80},
                                               {2, 6, 6, 70, 70, 24, true, 0, AttentionCase::blind},
                                               {2, 3, 1, 67, 67, 7, false, 0, AttentionCase::blind},
                                               {1, 4, 4, 5, 5, 32},
                                               {1, 2, 1, 66, 66, 64}};

// Sizes that fill several tiles, and odd ones.
const std::vector<AttentionCase> kTiles = {
    {2, 4, 2, 64, 64, 32},        {1, 2, 2, 67, 67, 13},
    {2, 2, 1, 71, 131, 41},       {1, 4, 4, 127, 127, 24, true, 29},
    {2, 4, 4, 67, 97, 17, false}, {2, 2, 2, 101, 101, 24, true, 0, AttentionCase::holes}};

// For sinks, and for values of another width: blocks of several sizes, windows, few queries, rows that see nothing.
const std::vector<AttentionCase> kMixedSizes = {{2, 4, 2, 83, 83, 13},
                                                {1, 4, 4, 70, 70, 8, true, 30},
                                                {2, 2, 1, 5, 5, 16},
                                                {2, 4, 2, 3, 131, 17, true, 40},
                                                {2, 3, 3, 67, 67, 7, false, 0, AttentionCase::blind}};

const ComposedCase kTimedMaps{.fixed = false};
const MixtureCase kTimedMixture{.coefficient = 0.06, .prior = MixtureCase::one};
const std::vector<AttentionCase> kTimed = {
    {8, 8, 8, 256, 256, 64},
    {8, 10, 10, 256, 512, 41},
    {8, 2, 2, 256, 512, 76},
    {4, 16, 16, 512, 1024, 64},
    {4, 8, 8, 1024, 1024, 64},
    {8, 10, 10, 256, 512, 41, true, 0, AttentionCase::none, true},
    {8, 2, 2, 256, 512, 76, true, 0, AttentionCase::none, true},
    {4, 8, 8, 512, 512, 64, true, 0, AttentionCase::none, false, kTimedMaps},
    {4, 8, 8, 1024, 1024, 64, true, 0, AttentionCase::none, false, kTimedMaps},
    {2, 16, 16, 512, 512, 64, true, 0, AttentionCase::none, false, kTimedMaps},
    {2, 16, 16, 1024, 1024, 64, true, 0, AttentionCase::none, false, kTimedMaps},
    {8, 4, 4, 256, 256, 64, true, 0, AttentionCase::none, false, {}, kTimedMixture},
    {4, 4, 4, 1024, 1024, 64, true, 0, AttentionCase::none, false, {}, kTimedMixture},
    {4, 8, 8, 512, 512, 64, true, 0, AttentionCase::none, false, {}, kTimedMixture},
};

// Collects cases; layouts come in turn, so that every kind meets each of them at some size.
struct Table {
  std::vector<AttentionCase> all;
  void add(AttentionCase c, Role role) {
    constexpr std::array kLayouts = {Layout::by_token, Layout::gaps, Layout::dense, Layout::swapped, Layout::by_token};
    c.role = role;
    if (role == Role::tested || role == Role::sequence) {
      c.layout = kLayouts[all.size() % kLayouts.size()];
    }
    all.push_back(c);
  }
};

// Where two components are equal but for rounding, either may be the best one: few pairs.
bool too_many_for_the_best(const AttentionCase& c) {
  return c.mixture && c.mixture->maximum && c.t * c.s > 1600;
}

void add_compositions(const AttentionCase& size, Table& to) {
  const std::vector<ComposedCase> kinds = {
      {.fixed = false},
      {.post = false, .fixed = false, .low_key = false, .gate_key = false},
      {.pre = false, .fixed = false, .low_query = false, .gate_query = false},
      {.skip = false, .low_query = false, .low_key = false, .gate_query = false, .gate_key = false},
      {.rank = 1},
      {.fixed = false, .low_query = false, .low_key = false}};
  for (AttentionCase c = size; const ComposedCase& kind : kinds) {
    c.composed = kind;
    to.add(c, Role::tested);
    if (const std::int64_t groups = c.h % 2 == 0 ? c.h / 2 : c.h; groups > 1) {
      c.composed->groups = groups;
      to.add(c, Role::tested);
    }
  }
}

void add_mixtures(const AttentionCase& size, Table& to) {
  AttentionCase c = size;
  for (const std::int64_t n : {1, 2, 3}) {
    for (const auto keys : {MixtureCase::own, MixtureCase::shifted, MixtureCase::shifted_by_position}) {
      for (const double coefficient : {0.2, 0.0}) {
        for (const double epsilon : {0.0, 0.5}) {
          c.mixture = MixtureCase{
              .n = n, .keys = keys, .coefficient = coefficient, .prior = MixtureCase::per_key, .epsilon = epsilon};
          to.add(c, Role::tested);
        }
      }
      c.mixture = MixtureCase{.n = n, .keys = keys, .maximum = true};
      if (keys != MixtureCase::shifted_by_position && !too_many_for_the_best(c)) {
        to.add(c, Role::tested);
      }
    }
  }
}

// What a layer combines of scores, positions and heads.
void add_combinations(const AttentionCase& size, Role role, Table& to) {
  const std::vector<std::optional<MixtureCase>> scores = {
      std::nullopt, MixtureCase{.coefficient = 0.05},
      MixtureCase{.n = 3, .keys = MixtureCase::shifted, .coefficient = 0.05, .epsilon = 0.5},
      MixtureCase{.n = 3,
                  .keys = MixtureCase::shifted_by_position,
                  .coefficient = 0.05,
                  .prior = MixtureCase::per_key,
                  .epsilon = 0.5},
      MixtureCase{.coefficient = 0.05, .maximum = true}};
  AttentionCase c = size;
  for (const bool composed : {false, true}) {
    for (const bool relative : {false, true}) {
      for (const std::optional<MixtureCase>& mixture : scores) {
        c.composed = composed ? std::optional(ComposedCase{}) : std::nullopt;
        c.relative = relative;
        c.mixture = mixture;
        const bool fused = !mixture || !c.sink;
        if (fused && (role != Role::tested || !too_many_for_the_best(c))) {
          to.add(c, role);
        }
      }
    }
  }
}

void add_bfloat16(AttentionCase size, Table& to) {
  to.add(size, Role::bfloat16);
  AttentionCase c = size;
  c.relative = true;
  to.add(c, Role::bfloat16);
  for (const auto& [pre, post] : {std::pair{true, true}, {true, false}, {false, true}}) {
    c = size;
    c.composed = ComposedCase{.pre = pre, .post = post};
    to.add(c, Role::bfloat16);
  }
  if (size.sink) {
    return;  // beside a mixture: the reference alone
  }
  // Coefficients are exact in bfloat16.
  for (const MixtureCase& kind :
       {MixtureCase{.n = 1}, MixtureCase{.n = 2}, MixtureCase{.n = 2, .keys = MixtureCase::shifted, .epsilon = 0.5},
        MixtureCase{.n = 3, .coefficient = 0.0, .epsilon = 0.5},
        MixtureCase{.n = 3, .keys = MixtureCase::shifted, .coefficient = 0.0}}) {
    c = size;
    c.mixture = kind;
    c.mixture->prior = MixtureCase::one;
    c.mixture->coefficient = kind.coefficient > 0.0 ? 1.0 / 16 : 0.0;
    to.add(c, Role::bfloat16);
  }
}

AttentionCase with_values(AttentionCase c, std::int64_t d_value, bool sink) {
  c.w = d_value;
  c.sink = sink;
  return c;
}

void add_widths_and_sinks(Table& to) {
  for (const AttentionCase& size : kMixedSizes) {
    for (const std::int64_t w : {1, 5, 40}) {
      add_combinations(with_values(size, w, false), Role::tested, to);
    }
    for (const std::int64_t w : {0, 3}) {
      add_combinations(with_values(size, w, true), Role::tested, to);
    }
  }
  for (std::size_t i = 0; i < kSequences.size(); ++i) {
    add_combinations(with_values(kSequences[i], i % 2 == 0 ? 0 : 19, true), Role::sequence, to);
    if (i < 2) {
      add_combinations(with_values(kSequences[i], 19, false), Role::sequence, to);
    }
  }
  for (std::size_t i = 0; i < kTiles.size(); ++i) {
    add_bfloat16(with_values(kTiles[i], i % 2 == 0 ? 0 : 19, true), to);
    if (i < 3) {
      add_bfloat16(with_values(kTiles[i], i == 0 ? 48 : 19, false), to);
    }
  }
}

// Biases, and sinks beside a mixture.
void add_reference_only(Table& to) {
  for (AttentionCase c : {AttentionCase{2, 4, 2, 5, 7, 3}, {2, 4, 4, 5, 7, 3, false}}) {
    for (const bool per_batch : {false, true}) {
      for (const bool per_query : {false, true}) {
        c.bias = BiasCase{.per_batch = per_batch, .per_query = per_query};
        to.add(c, Role::reference_only);
      }
    }
  }
  AttentionCase c{1, 2, 1, 6, 6, 4};
  c.sink = true;
  for (const double epsilon : {0.0, 0.5}) {
    c.mixture = MixtureCase{.epsilon = epsilon};
    to.add(c, Role::reference_only);
  }
}

std::vector<AttentionCase> make_table() {
  Table table;
  for (AttentionCase c : kPlain) {
    for (const Layout layout : {Layout::dense, Layout::swapped}) {
      table.add(c, Role::tested);
      table.all.back().layout = layout;
    }
  }
  for (const AttentionCase& size : kSizes) {
    add_compositions(size, table);
    add_mixtures(size, table);
    add_combinations(size, Role::tested, table);
  }
  for (const AttentionCase& size : kSequences) {
    add_combinations(size, Role::sequence, table);
  }
  for (const AttentionCase& size : kTiles) {
    add_bfloat16(size, table);
  }
  add_widths_and_sinks(table);
  add_reference_only(table);
  for (const AttentionCase& c : kTimed) {
    table.add(c, Role::timed);
  }
  return table.all;
}

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
  maybe(in.sink);
  if (in.mixture) {
    std::for_each(in.mixture->more_keys.begin(), in.mixture->more_keys.end(), body);
    maybe(in.mixture->shift);
    maybe(in.mixture->prior);
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
  return fmt::format(" bias of {}{}", c.per_query ? "pairs" : "keys", c.per_batch ? "" : " for the whole batch");
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

}  // namespace

std::string AttentionCase::name() const {
  constexpr std::array kPaddings = {"", " holes", " blind"};
  return fmt::format("B{} H{} G{} T{} S{} e{}{}{}{}{}{}{}{}{}{}{}", b, h, g, t, s, e,
                     w > 0 ? fmt::format(" w{}", w) : "", causal ? "" : " both ways",
                     window > 0 ? fmt::format(" window {}", window) : "", kPaddings[padding],
                     relative ? " relative" : "", composed ? name_of(*composed) : "", mixture ? name_of(*mixture) : "",
                     sink ? " sink" : "", bias ? name_of(*bias) : "", ops::name_of(layout));
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
  if (bias) {
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

// Scores are sums of e <= 41 products of size ~1: an error of about 41 * 2^-24 in a score is the same relative error in
// a probability, and gradients sum S <= 200 of them. Composition adds up to 16 heads' sums. A mixture's squared lengths
// of size 2 e are differences that lose up to 2 e * 2^-24 * 4 before exp takes them. With relative positions there are
// two products a score.
std::vector<Precision> AttentionCase::precisions() const {
  const bool more = composed || mixture;
  return {{at::kFloat, 1e-5 * (1.0 + (composed ? 1.0 : 0.0) + (mixture ? 2.0 : 0.0) + (more && relative ? 1.0 : 0.0))}};
}

const std::vector<AttentionCase>& attention_cases() {
  static const std::vector<AttentionCase> all = make_table();
  return all;
}

std::vector<AttentionCase> attention_cases(Role role) {
  std::vector<AttentionCase> some;
  std::copy_if(attention_cases().begin(), attention_cases().end(), std::back_inserter(some),
               [&](const AttentionCase& c) { return c.role == role; });
  return some;
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
