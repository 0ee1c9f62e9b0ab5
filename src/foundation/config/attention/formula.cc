// Formulas of the scores of score = "dot": their learned values, and what they are checked for.
#include <algorithm>
#include <cmath>
#include <optional>

#include "foundation/config/checker.h"
#include "foundation/config/parse.h"
#include "foundation/core/formula/program.h"
#include "foundation/core/text/format.h"
#include "shared.h"

namespace headroom::config {
namespace {

using formula::Node;
using formula::Op;

LearnedValue learned_value(const std::string& name, const toml::node& given) {
  const std::string place = "learned." + name;
  LearnedValue value{.name = name};
  Fields fields;
  fields.add("shape", value.shape, "");
  fields.add("start", value.start, {}, "");
  fields.add("size", value.size, between(1, 1 << 24), "");
  fields.add("from", value.from, "");
  fields.add("cumulative", value.cumulative, "");
  if (!formula::is_free_name(name)) {
    user_error("{}: cannot be a name in a formula; use letters, digits and _, and no word of the language", place);
  }
  if (!given.is_table()) {
    user_error("{}: must be a table such as {{shape = \"head\", start = 0.5}}, got {}", place, detail::shown(given));
  }
  for (const auto& [key, inner] : *given.as_table()) {
    const Field* field = fields.root().find(key.str());
    if (field == nullptr) {
      user_error("{}.{}: unknown key; must be shape, start, size, from or cumulative", place, std::string(key.str()));
    }
    detail::assign(*field, inner, "", place + "." + field->key);
  }
  if (value.is_table() != (value.size > 0)) {
    user_error("{}.size: must be {} with shape = \"{}\"", place, value.is_table() ? "set" : "left out",
               name_of(value.shape));
  }
  if (!value.of_tokens() && (value.from != TokenFunction::linear || value.cumulative)) {
    user_error("{}: from and cumulative need shape = \"token\" or \"token, head\"", place);
  }
  return value;
}

formula::Name::Kind kind_of(const LearnedValue& value) {
  return value.of_tokens()  ? formula::Name::Kind::token
         : value.is_table() ? formula::Name::Kind::table
                            : formula::Name::Kind::learned;
}

formula::Names names_of(const std::vector<LearnedValue>& learned, std::int64_t n_heads, std::int64_t d_head) {
  formula::Names all;
  all.n_heads = static_cast<int>(n_heads);
  all.d_head = static_cast<int>(d_head);
  int counts[3] = {};
  for (const LearnedValue& value : learned) {
    const formula::Name::Kind kind = kind_of(value);
    all.names[value.name] = {kind, counts[static_cast<int>(kind)]++, value.by_head()};
  }
  return all;
}

formula::Name::Kind kind_of(Op load) {
  return load == Op::learned ? formula::Name::Kind::learned
         : load == Op::table ? formula::Name::Kind::table
                             : formula::Name::Kind::token;
}

struct Programs {
  formula::Program score, mask;
  std::vector<LearnedValue> learned;
};

Programs programs_of(const DotOptions& o, std::int64_t n_heads, std::int64_t d_head) {
  Programs all;
  const toml::table table = detail::parse_toml("learned = {" + o.learned + "}", "learned");
  for (const auto& [name, value] : *table.get_as<toml::table>("learned")) {
    all.learned.push_back(learned_value(std::string(name.str()), value));
  }
  const formula::Names names = names_of(all.learned, n_heads, d_head);
  all.score = formula::parse(o.formula.empty() ? "s" : o.formula, names, /*mask=*/false, "formula: ");
  all.mask = formula::parse(o.mask.empty() ? "1" : o.mask, names, /*mask=*/true, "mask: ");
  for (const LearnedValue& value : all.learned) {
    const formula::Name own = names.names.at(value.name);
    const auto reads = [&](const Node& node) {
      return formula::is_load(node.op) && kind_of(node.op) == own.kind && node.index == own.index;
    };
    if (std::ranges::none_of(all.score.nodes, reads) && std::ranges::none_of(all.mask.nodes, reads)) {
      user_error("learned.{}: neither formula nor mask uses it; remove it, or write {} there", value.name,
                 value.of_tokens()  ? value.name + "(i)"
                 : value.is_table() ? fmt::format("{}[{}i - j]", value.name, value.by_head() ? "h, " : "")
                                    : value.name);
    }
  }
  return all;
}

double start_of(const std::vector<LearnedValue>& learned, const Node& load) {
  int before = load.index;
  for (const LearnedValue& value : learned) {
    if (kind_of(value) == kind_of(load.op) && before-- == 0) {
      return value.start;
    }
  }
  return 0.0;
}

// Returns the output of a program after replacing the inputs that value_of() has a value for. If an operation on
// constants gives NaN, returns this operation with NaN as its constant.
template <class ValueOf>
Node computed(const formula::Program& program, const ValueOf& value_of) {
  formula::Builder builder;
  std::vector<int> ids;
  for (const Node& node : program.nodes) {
    const std::optional<double> value = value_of(node);
    ids.push_back(value ? builder.constant(*value) : builder.add(formula::renumbered(node, ids)));
    if (std::isnan(builder.node(ids.back()).constant)) {
      return {.op = node.op, .constant = builder.node(ids.back()).constant};
    }
  }
  return builder.node(ids[static_cast<std::size_t>(program.outputs[0])]);
}

// A pair of tokens at which a formula is tried.
struct Pair {
  double s, i, j, h;
};

// Returns the value at a pair, with the start values of what is learned; or the first operation that gives NaN.
Node try_at(const formula::Program& program, const std::vector<LearnedValue>& learned, const Pair& pair) {
  return computed(program, [&](const Node& node) -> std::optional<double> {
    return formula::is_load(node.op) ? std::optional(start_of(learned, node))
           : node.op == Op::s        ? std::optional(pair.s)
           : node.op == Op::i        ? std::optional(pair.i)
           : node.op == Op::j        ? std::optional(pair.j)
           : node.op == Op::h        ? std::optional(pair.h)
                                     : std::nullopt;
  });
}

// Weights without a softmax and scores that heads compose must be `finite`: the softmax alone makes a weight of -inf.
void check_numbers(const detail::Checker& check, const Programs& all, std::int64_t n_heads, bool finite) {
  for (const double s : {-4.0, -1.0, 0.0, 1.0, 4.0}) {
    for (const Pair& pair : {Pair{s, 0, 0, 0}, Pair{s, 1, 0, 0}, Pair{s, 7, 3, static_cast<double>(n_heads - 1)}}) {
      const Node mask = try_at(all.mask, all.learned, pair), score = try_at(all.score, all.learned, pair);
      const bool wrong_mask = std::isnan(mask.constant), visible = mask.constant != 0.0;
      const auto value = static_cast<float>(score.constant);
      const bool wrong_score = std::isnan(value) || (std::isinf(value) && (finite || value > 0.0F));
      const bool infinite = !wrong_mask && std::isinf(value);
      check.require(!wrong_mask && !(visible && wrong_score), wrong_mask ? "mask" : "formula",
                    "{} gives {} at the start for s = {}, i = {}, j = {}, h = {}",
                    infinite ? "it" : formula::name((wrong_mask ? mask : score).op),
                    infinite ? fmt::format("{}", value) : "no number", pair.s, pair.i, pair.j, pair.h);
    }
  }
}

}  // namespace

Formulas formulas_of(const DotOptions& o, std::int64_t n_heads, std::int64_t d_head) {
  const Programs all = programs_of(o, n_heads, d_head);
  return {o.formula.empty() ? "" : formula::to_text(all.score), o.mask.empty() ? "" : formula::to_text(all.mask),
          all.learned};
}

bool starts_as_product(const DotOptions& o, std::int64_t n_heads, std::int64_t d_head) {
  const Programs all = programs_of(o, n_heads, d_head);
  const Node score = computed(all.score, [&](const Node& node) {  // token terms start at random
    const bool fixed = node.op == Op::learned || node.op == Op::table;
    return fixed ? std::optional(start_of(all.learned, node)) : std::nullopt;
  });
  return score.op == Op::s && o.mask.empty() && o.normalise == Normalise::softmax;
}

namespace detail {

void describe_formula(Fields& fields, DotOptions& o) {
  add_strict(fields, "formula", o.formula,
             "dot: the score of query i and key j from s, the scaled product: \"20 * tanh(s / 20) - slope * (i - j)\" "
             "(docs/formula.md); \"\": s");
  add_strict(fields, "mask", o.mask,
             "dot: a comparison that selects the keys of a query, besides the model's own mask: \"i - j < 256 or j < "
             "4\"; \"\": all");
  Field& learned = fields.add("learned", o.learned,
                              "dot: the learned values of formula and mask: {slope = {shape = \"head\", start = 0.5}}");
  learned.table = learned.refuse_unused = true;
  add_strict(fields, "normalise", o.normalise, "dot: softmax of the scores, or none: the weights are the scores");
}

void check_formula(const Checker& check, const AttentionOptions& a) {
  const auto& o = a.of<DotOptions>();
  const bool plain = o.normalise == Normalise::softmax;
  check.require(plain || !o.sink, "normalise", "must be \"softmax\" with sink = true");
  check.require(plain || a.composition.name() == "none", "normalise", "must be \"softmax\" with {}",
                setting("composition", a.composition));
  if (o.formula.empty() && o.mask.empty() && o.learned.empty()) {
    return;
  }
  const char* const key = o.formula.empty() ? o.mask.empty() ? "learned" : "mask" : "formula";
  check.require(a.composition->maps_per_head(a) == 1, key, "must be left out with {}, whose heads have two scores",
                setting("composition", a.composition));
  check.require(a.projection->has_fixed_heads() && a.projection->attends_everywhere(), key,
                "must be left out with {}, which routes tokens to heads", setting("projection", a.projection));
  Programs all;
  std::string wrong;
  try {
    all = programs_of(o, a.computed_heads(), a.d_head);
  } catch (const UserError& error) {
    wrong = error.what();
  }
  const std::size_t colon = std::min(wrong.find(": "), wrong.size());
  check.require(wrong.empty(), wrong.substr(0, colon), "{}", wrong.substr(std::min(colon + 2, wrong.size())));
  const bool composed = a.composition.name() != "none" && a.of<CompositionOptions>().composes("pre");
  check_numbers(check, all, a.computed_heads(), !plain || composed);
}

// Operations of one operand. Torch's derivatives read the result of the first kind and the operand of the second.
constexpr Op kReadResult[] = {Op::exp, Op::sqrt, Op::tanh, Op::sigmoid, Op::relu};
constexpr Op kReadOperand[] = {Op::abs, Op::log, Op::log1p, Op::log_sigmoid, Op::softplus, Op::power};

// A lower bound: the weights, and the values of pairs that torch's derivatives of the formula's operations read. The
// kernels support neither composed heads nor relative positions and biases, and do not drop weights.
Exact saved_by_formula(const AttentionOptions& a, const AttentionExtent& extent) {
  const auto& o = a.of<DotOptions>();
  const bool given = !o.formula.empty() || !o.mask.empty() || o.normalise == Normalise::none;
  const bool dropped = a.dropout > 0.0;  // the caller counts the weights
  if (!given || !(dropped || a.composition.name() != "none" || a.position->has_distances())) {
    return 0;
  }
  const formula::Program score = programs_of(o, a.computed_heads(), a.d_head).score;
  struct Value {
    bool of_pairs = false, trained = false, saved = false;
  };
  std::vector<Value> values;
  for (const Node& node : score.nodes) {
    Value own{node.op == Op::s, node.op == Op::s || formula::is_load(node.op)};
    for (const int operand : {node.a, node.b, node.c}) {
      const Value of = operand < 0 ? Value() : values[static_cast<std::size_t>(operand)];
      own.of_pairs = own.of_pairs || of.of_pairs;
      own.trained = own.trained || of.trained;
    }
    const auto save = [&](int operand, int other) {
      if (other < 0 || values[static_cast<std::size_t>(other)].trained) {
        values[static_cast<std::size_t>(operand)].saved = true;
      }
    };
    own.saved = std::ranges::count(kReadResult, node.op) > 0;
    if (std::ranges::count(kReadOperand, node.op) > 0) {
      save(node.a, -1);
    } else if (node.op == Op::mul || node.op == Op::div) {
      save(node.a, node.b);
      save(node.b, node.a);
    }
    values.push_back(own);
  }
  const auto saved = std::ranges::count_if(values, [](const Value& v) { return v.of_pairs && v.saved; });
  return Exact(saved + (dropped ? 0 : 1)) * a.attention_matrices() * extent.queries * extent.sources;
}

}  // namespace detail
}  // namespace headroom::config
