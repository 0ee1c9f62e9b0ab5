// The reference of score formulas: the list of operations in plain tensor operations.
#include <map>
#include <mutex>
#include <tuple>

#include "attention_operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

using formula::Node;
using formula::Op;

void check_shapes(const char* key, const std::vector<at::Tensor>& all, std::int64_t dimensions,
                  const std::vector<c10::SymInt>& sizes) {
  for (const at::Tensor& t : all) {
    bool fits = t.dim() == dimensions;
    for (std::int64_t axis = 0; fits && axis < dimensions; ++axis) {
      const c10::SymInt& wanted = sizes[static_cast<std::size_t>(axis)];
      fits = wanted == 0 ? t.sym_size(axis) > 0
                         : t.sym_size(axis) == wanted || (dimensions > 1 && axis < 2 && t.sym_size(axis) == 1);
    }
    if (!fits) {
      fail("attention: {} must be {}, got {}", key, dimensions == 1 ? "[H]" : "[B or 1, H or 1, size or S]",
           shape_of(t));
    }
  }
}

// Computes the nodes of a program as tensors that broadcast to [B, H, T, S].
class Evaluation {
 public:
  Evaluation(const AttentionInputs& in, const at::TensorOptions& type) : in_(in), type_(type) {}

  at::Tensor operator()(const formula::Program& program, const at::Tensor& s) {
    std::vector<at::Tensor> values;
    for (const Node& node : program.nodes) {
      const auto at = [&](int id) { return id < 0 ? at::Tensor() : values[static_cast<std::size_t>(id)]; };
      values.push_back(node.op <= Op::token_j ? input(node, s, at(node.a))
                                              : apply(node, at(node.a), at(node.b), at(node.c)).to(type_));
    }
    return values[static_cast<std::size_t>(program.outputs[0])];
  }

 private:
  at::Tensor input(const Node& node, const at::Tensor& s, const at::Tensor& index) const {
    const c10::SymInt n_queries = in_.q.sym_size(2), n_keys = in_.k.sym_size(2);
    const ScoreFormula& f = in_.formula;
    const auto range = [&](const c10::SymInt& from, const c10::SymInt& n) {
      return at::arange(at::Scalar(from), at::Scalar(from + n), type_);
    };
    const auto number = static_cast<std::size_t>(node.index);
    switch (node.op) {
      case Op::constant:
        return at::scalar_tensor(node.constant, type_);
      case Op::s:
        return s;
      case Op::i:
        return range(f.queries_last ? n_keys - n_queries + f.first_key : c10::SymInt(0), n_queries).unsqueeze(1);
      case Op::j:
        return range(f.first_key, n_keys);
      case Op::h:
        return range(0, in_.q.sym_size(1)).view_symint({-1, 1, 1});
      case Op::learned:
        return f.learned[number].to(type_).view_symint({-1, 1, 1});
      case Op::table:
        return element(f.tables[number].to(type_), index);
      case Op::token_i: {
        const at::Tensor& t = f.tokens[number];
        return t.narrow_symint(2, n_keys - n_queries, n_queries).to(type_).unsqueeze(3);
      }
      default:
        return f.tokens[number].to(type_).unsqueeze(2);
    }
  }

  // table [B or 1, H or 1, size], index broadcasts to [B, H, T, S].
  static at::Tensor element(const at::Tensor& table, const at::Tensor& index) {
    const at::TensorOptions whole = table.options().dtype(at::kLong);
    const auto axis = [&](std::int64_t at) { return at::arange(at::Scalar(table.sym_size(at)), whole); };
    const at::Tensor known = index.detach().masked_fill(index.detach().ne(index), 0.0);  // NaN is 0
    const at::Tensor place = known.floor().clamp(0, at::Scalar(table.sym_size(2) - 1)).to(at::kLong);
    return table.index({axis(0).view_symint({-1, 1, 1, 1}), axis(1).view_symint({-1, 1, 1}), place});
  }

  static at::Tensor apply(const Node& node, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    const double exponent = node.constant;
    switch (node.op) {
#define HEADROOM_UNARY(op, text, of_doubles, value, ...) \
  case Op::op:                                           \
    return value;
#define HEADROOM_BINARY HEADROOM_UNARY
#include "foundation/core/formula/operations.inc"
      default:
        return at::where(a.ne(0), b, c);
    }
  }

  const AttentionInputs& in_;
  at::TensorOptions type_;
};

}  // namespace

const ParsedFormula& parsed(const ScoreFormula& f) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, std::string, std::size_t, std::size_t, std::size_t>, ParsedFormula> all;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::tuple key(f.score, f.mask, f.learned.size(), f.tables.size(), f.tokens.size());
  if (const auto found = all.find(key); found != all.end()) {
    return found->second;
  }
  const auto count = [](const std::vector<at::Tensor>& tensors) { return static_cast<int>(tensors.size()); };
  const formula::Names names = formula::canonical(count(f.learned), count(f.tables), count(f.tokens));
  ParsedFormula made;
  if (!f.score.empty()) {
    made.score = formula::parse(f.score, names, /*mask=*/false, "attention: formula: ");
    made.derivative = formula::derivative(*made.score);
  }
  if (!f.mask.empty()) {
    made.mask = formula::parse(f.mask, names, /*mask=*/true, "attention: formula_mask: ");
  }
  return all.emplace(key, made).first->second;
}

void check_formula(const AttentionInputs& in) {
  const ScoreFormula& f = in.formula;
  if (!f.given()) {
    return;
  }
  parsed(f);
  const c10::SymInt b = in.q.sym_size(0), h = in.q.sym_size(1);
  check_shapes("formula_learned", f.learned, 1, {h});
  check_shapes("formula_tables", f.tables, 3, {b, h, 0});
  check_shapes("formula_tokens", f.tokens, 3, {b, h, in.k.sym_size(2)});
  if (!f.tokens.empty() && !f.queries_last) {
    fail("attention: formula_tokens need formula_queries_last");
  }
  if (!f.normalise && (in.sink || in.mixture)) {
    fail("attention: formula_normalise=false needs neither a sink nor a mixture");
  }
}

at::Tensor formula_scores(const AttentionInputs& in, const at::Tensor& s) {
  return in.formula.score.empty() ? s : Evaluation(in, s.options())(*parsed(in.formula).score, s).expand_as(s);
}

at::Tensor formula_visible(const AttentionInputs& in, const at::Tensor& visible) {
  if (in.formula.mask.empty()) {
    return visible;
  }
  const at::TensorOptions type = in.q.options().dtype(in.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const at::Tensor own = Evaluation(in, type)(*parsed(in.formula).mask, {}).ne(0);
  return visible.defined() ? own.logical_and(visible) : own;
}

}  // namespace headroom::ops
