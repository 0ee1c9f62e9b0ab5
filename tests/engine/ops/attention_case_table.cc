// Lists the cases of attention: sizes, and the combinations of options at each size.
#include <array>
#include <iterator>

#include "attention_cases.h"

namespace headroom::ops {
namespace {

// Sizes for plain attention and relative positions.
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
    {2, 4, 2, 3, 131, 17, true, 0, AttentionCase::none, true},  // decode path
    {1, 4, 4, 7, 200, 24, true, 90, AttentionCase::none, true},
    {2, 2, 1, 5, 150, 16, false, 0, AttentionCase::none, true},
};

// Sizes for compositions, mixtures and combinations of both.
const std::vector<AttentionCase> kSizes = {{1, 1, 1, 1, 1, 1},
                                           {2, 4, 2, 17, 17, 5},
                                           {2, 8, 8, 37, 70, 13},
                                           {1, 3, 1, 20, 131, 7, false},
                                           {2, 6, 6, 33, 33, 4, true, 5},
                                           {2, 16, 4, 9, 9, 8},
                                           {2, 8, 8, 40, 40, 6, false, 0, AttentionCase::blind},
                                           {3, 4, 4, 67, 67, 3, true, 0, AttentionCase::blind},
                                           {1, 4, 2, 150, 170, 5, true, 90},
                                           {2, 4, 2, 1, 83, 5},  // decode path
                                           {1, 8, 4, 7, 140, 11, true, 80},
                                           {2, 6, 6, 5, 70, 16, false, 0, AttentionCase::blind}};

// Sizes for Role::sequence.
const std::vector<AttentionCase> kSequences = {{2, 4, 2, 83, 83, 13},
                                               {1, 8, 4, 140, 140, 11, true, 80},
                                               {2, 6, 6, 70, 70, 24, true, 0, AttentionCase::blind},
                                               {2, 3, 1, 67, 67, 7, false, 0, AttentionCase::blind},
                                               {1, 4, 4, 5, 5, 32},
                                               {1, 2, 1, 66, 66, 64}};

// Sizes for Role::bfloat16: some fill several tiles, others are odd.
const std::vector<AttentionCase> kTiles = {
    {2, 4, 2, 64, 64, 32},        {1, 2, 2, 67, 67, 13},
    {2, 2, 1, 71, 131, 41},       {1, 4, 4, 127, 127, 24, true, 29},
    {2, 4, 4, 67, 97, 17, false}, {2, 2, 2, 101, 101, 24, true, 0, AttentionCase::holes}};

// Sizes for sinks and d_value != d_head: several block sizes, windows, the decode path, rows without a visible key.
const std::vector<AttentionCase> kMixedSizes = {{2, 4, 2, 83, 83, 13},
                                                {1, 4, 4, 70, 70, 8, true, 30},
                                                {2, 2, 1, 5, 5, 16},
                                                {2, 4, 2, 3, 131, 17, true, 40},
                                                {2, 3, 3, 67, 67, 7, false, 0, AttentionCase::blind}};

// Collects cases and cycles through the layouts, so that every kind of case gets each layout at some size.
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

// With `maximum`, two components may be equal up to rounding, and either may win. Such cases have few query-key pairs.
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

// Adds combinations of scores, positions and head composition.
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
        const bool fused = !mixture || !c.sink || mixture->epsilon == 0.0;
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
    return;  // float32 cases cover sinks
  }
  // The coefficients are exact in bfloat16.
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

// Adds biases of queries and keys, with dot products, mixtures and composed heads.
void add_token_biases(Table& to) {
  const std::vector<std::optional<MixtureCase>> scores = {
      std::nullopt, MixtureCase{.coefficient = 0.05, .prior = MixtureCase::per_key, .epsilon = 0.5},
      MixtureCase{.n = 3, .keys = MixtureCase::shifted, .coefficient = 0.05}};
  for (AttentionCase c : kMixedSizes) {
    for (const bool composed : {false, true}) {
      for (const std::optional<MixtureCase>& mixture : scores) {
        c.composed = composed ? std::optional(ComposedCase{}) : std::nullopt;
        c.mixture = mixture;
        c.bias = BiasCase{.per_batch = composed == mixture.has_value(), .by_token = true};
        c.w = mixture ? 0 : 3;
        for (const bool sink : {false, true}) {
          if (!sink || !mixture || mixture->epsilon == 0.0) {
            c.sink = sink;
            to.add(c, Role::tested);
          }
        }
      }
    }
  }
}

// Adds formulas that cover the operations, the indices that values vary with, and masks that hide whole blocks.
void add_formulas(Table& to) {
  const std::vector<FormulaCase> kinds = {
      {"s", "i - j < 20 or j < 4"},
      {"20 * tanh(s / 20) - sigmoid(learned0) * abs(i - j)"},
      {"s + table0[abs(i - j)]", "i // 50 == j // 50", true, true, true, 3},
      {"s + token0(i) - token0(j) + table0[h]"},
      {"s * table0[(i * j) % 23] + where(i - j < 5, learned0, min(s, 1))", "(i + j) % 3 < 2"},
      {"exp(-abs(s)) + s", "i // 64 > j // 64", true, false, false},
      {"s * sigmoid(learned0) + table0[j % 19] - table0[i - 40]", "table0[i % 7] < 0.5", true, true},
      {"sigmoid(s + learned0) / (1 + abs(i - j))", "i - j != 3", false},
      {"s * s * token0(j) + softplus(learned0)", "h != 1 or j > 70", false}};
  const std::vector<AttentionCase> sizes = {{2, 4, 2, 83, 150, 13},
                                            {1, 4, 4, 200, 200, 8, true, 90},
                                            {2, 2, 2, 70, 201, 16, false, 0, AttentionCase::blind},
                                            {2, 4, 2, 3, 131, 17},  // decode path
                                            {2, 3, 1, 9, 9, 7, true, 0, AttentionCase::holes}};
  for (AttentionCase c : sizes) {
    for (const FormulaCase& kind : kinds) {
      c.formula = kind;
      c.sink = kind.normalise && kind.mask.empty();
      to.add(c, Role::tested);
    }
  }
  for (AttentionCase c : kTiles) {
    for (const FormulaCase& kind : kinds) {
      c.formula = kind;
      to.add(c, Role::bfloat16);
    }
  }
}

// Adds biases of pairs, and mixtures with an epsilon and a sink.
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
  c.mixture = MixtureCase{.epsilon = 0.5};
  to.add(c, Role::reference_only);
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
  add_token_biases(table);
  add_formulas(table);
  add_reference_only(table);
  return table.all;
}

}  // namespace

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

}  // namespace headroom::ops
