#include "program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace headroom::formula {
namespace {

double log_sigmoid(double x) {
  return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
}

bool is_commutative(Op op) {
  return op == Op::add || op == Op::mul || op == Op::min || op == Op::max || op == Op::eq || op == Op::logical_and ||
         op == Op::logical_or;
}

bool is_input(Op op) {
  return op <= Op::token_j;
}

}  // namespace

bool is_boolean(Op op) {
  return op == Op::logical_not || op == Op::lt || op == Op::le || op == Op::eq || op == Op::logical_and ||
         op == Op::logical_or;
}

bool is_load(Op op) {
  return op == Op::learned || op == Op::table || op == Op::token_i || op == Op::token_j;
}

std::string name(Op op) {
  constexpr const char* kNames[] = {"constant", "s", "i", "j", "h", "learned", "table", "token", "token",
#define HEADROOM_UNARY(op, text, ...) text,
#define HEADROOM_BINARY HEADROOM_UNARY
#include "operations.inc"
                                    "where"};
  return kNames[static_cast<std::size_t>(op)];
}

double apply(const Node& node, double a, double b, double c) {
  const double exponent = node.constant;
  switch (node.op) {
#define HEADROOM_UNARY(op, text, value, ...) \
  case Op::op:                               \
    return value;
#define HEADROOM_BINARY HEADROOM_UNARY
#include "operations.inc"
    case Op::where:
      return a != 0.0 ? b : c;
    default:
      return 0.0;
  }
}

// (x * constant) * constant as one product; otherwise -1.
int Builder::product_with_constants(const Node& n) {
  for (const auto& [inner, outer] : {std::pair(n.a, n.b), std::pair(n.b, n.a)}) {
    const Node product = node(inner), factor = node(outer);
    if (product.op != Op::mul || factor.op != Op::constant) {
      continue;
    }
    for (const auto& [x, known] : {std::pair(product.a, product.b), std::pair(product.b, product.a)}) {
      if (node(known).op == Op::constant) {
        return add(Op::mul, x, constant(node(known).constant * factor.constant));
      }
    }
  }
  return -1;
}

int Builder::simplified(const Node& n) {
  const auto constants = [&](int id) { return id < 0 || node(id).op == Op::constant; };
  const auto value = [&](int id) { return id < 0 ? 0.0 : node(id).constant; };
  if (!is_input(n.op) && constants(n.a) && constants(n.b) && constants(n.c)) {
    return constant(apply(n, value(n.a), value(n.b), value(n.c)));
  }
  switch (n.op) {
    case Op::neg:
      return node(n.a).op == Op::neg ? node(n.a).a : -1;
    case Op::power:
      return n.constant == 1.0 ? n.a : n.constant == 2.0 ? add(Op::mul, n.a, n.a) : -1;
    case Op::add:
      return is(n.a, 0.0) ? n.b : is(n.b, 0.0) ? n.a : -1;
    case Op::sub:
      return is(n.b, 0.0) ? n.a : is(n.a, 0.0) ? add(Op::neg, n.b) : -1;
    case Op::mul:
      if (is(n.a, 0.0) || is(n.b, 0.0)) {
        return constant(0.0);
      }
      if (is(n.a, -1.0) || is(n.b, -1.0)) {
        return add(Op::neg, is(n.a, -1.0) ? n.b : n.a);
      }
      if (is(n.a, 1.0) || is(n.b, 1.0)) {
        return is(n.a, 1.0) ? n.b : n.a;
      }
      return product_with_constants(n);
    case Op::div:
      if (node(n.a).op == Op::mul && node(n.b).op == Op::constant && (node(n.a).a == n.b || node(n.a).b == n.b)) {
        return node(n.a).a == n.b ? node(n.a).b : node(n.a).a;  // c x / c, the derivative of c f(x / c)
      }
      return is(n.b, 1.0) ? n.a : is(n.a, 0.0) ? n.a : -1;
    case Op::logical_and:
      return is(n.a, 0.0) || is(n.b, 1.0) ? n.a : is(n.b, 0.0) || is(n.a, 1.0) ? n.b : -1;
    case Op::logical_or:
      return is(n.a, 1.0) || is(n.b, 0.0) ? n.a : is(n.b, 1.0) || is(n.a, 0.0) ? n.b : -1;
    case Op::where:
      return n.b == n.c || (node(n.a).op == Op::constant && node(n.a).constant != 0.0) ? n.b : is(n.a, 0.0) ? n.c : -1;
    default:
      return -1;
  }
}

int Builder::add(Node node) {
  if (is_commutative(node.op) && node.a > node.b) {
    std::swap(node.a, node.b);
  }
  const int same = simplified(node);
  if (same >= 0) {
    return same;
  }
  if (node.op == Op::constant && std::isnan(node.constant)) {  // not equal to itself: a key must be
    nodes_.push_back(node);
    return static_cast<int>(nodes_.size()) - 1;
  }
  const auto [found, added] =
      known_.try_emplace({node.op, node.a, node.b, node.c, node.constant, node.index}, static_cast<int>(nodes_.size()));
  if (added) {
    nodes_.push_back(node);
  }
  return found->second;
}

Node renumbered(Node node, const std::vector<int>& numbers) {
  for (int* operand : {&node.a, &node.b, &node.c}) {
    *operand = *operand < 0 ? -1 : numbers[static_cast<std::size_t>(*operand)];
  }
  return node;
}

Program Builder::build(const std::vector<int>& outputs) const {
  std::vector<bool> needed(nodes_.size(), false);
  for (const int id : outputs) {
    needed[static_cast<std::size_t>(id)] = true;
  }
  for (std::size_t at = nodes_.size(); at-- > 0;) {
    for (const int operand : {nodes_[at].a, nodes_[at].b, nodes_[at].c}) {
      if (needed[at] && operand >= 0) {
        needed[static_cast<std::size_t>(operand)] = true;
      }
    }
  }
  Program program;
  std::vector<int> moved(nodes_.size(), -1);
  for (std::size_t at = 0; at < nodes_.size(); ++at) {
    if (needed[at]) {
      moved[at] = static_cast<int>(program.nodes.size());
      program.nodes.push_back(renumbered(nodes_[at], moved));
    }
  }
  for (const int id : outputs) {
    program.outputs.push_back(moved[static_cast<std::size_t>(id)]);
  }
  return program;
}

std::string to_text(const Program& program) {
  const auto shortest = [](double value) {
    return value < 0.0 ? fmt::format("({})", value) : fmt::format("{}", value);
  };
  std::vector<std::string> names;
  std::string text;
  for (const Node& n : program.nodes) {
    const auto of = [&](int id) { return names[static_cast<std::size_t>(id)]; };
    std::string value;
    if (n.op == Op::constant || is_load(n.op) || n.op <= Op::h) {
      value = n.op == Op::constant  ? shortest(n.constant)
              : n.op == Op::table   ? fmt::format("table{}[{}]", n.index, of(n.a))
              : n.op == Op::learned ? fmt::format("learned{}", n.index)
              : is_load(n.op)       ? fmt::format("token{}({})", n.index, n.op == Op::token_i ? "i" : "j")
                                    : name(n.op);
    } else if (n.op == Op::power) {
      value = fmt::format("{} ** {}", of(n.a), shortest(n.constant));
    } else if (n.op == Op::min || n.op == Op::max) {
      value = fmt::format("{}({}, {})", name(n.op), of(n.a), of(n.b));
    } else if (n.op == Op::where) {
      value = fmt::format("where({}, {}, {})", of(n.a), of(n.b), of(n.c));
    } else if (n.b >= 0) {
      value = fmt::format("{} {} {}", of(n.a), name(n.op), of(n.b));
    } else {
      value = n.op == Op::neg || n.op == Op::logical_not ? fmt::format("{} {}", name(n.op), of(n.a))
                                                         : fmt::format("{}({})", name(n.op), of(n.a));
    }
    if (is_input(n.op) && n.op != Op::table) {
      names.push_back(value);
      continue;
    }
    names.push_back(fmt::format("v{}", names.size()));
    text += fmt::format("{} = {}; ", names.back(), value);
  }
  return text + names[static_cast<std::size_t>(program.outputs[0])];
}

Names canonical(int learned, int tables, int tokens) {
  Names all;
  for (int k = 0; k < learned; ++k) {
    all.names[fmt::format("learned{}", k)] = {Name::Kind::learned, k};
  }
  for (int k = 0; k < tables; ++k) {
    all.names[fmt::format("table{}", k)] = {Name::Kind::table, k, /*heads=*/false};
  }
  for (int k = 0; k < tokens; ++k) {
    all.names[fmt::format("token{}", k)] = {Name::Kind::token, k};
  }
  return all;
}

}  // namespace headroom::formula
