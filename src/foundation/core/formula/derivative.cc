// Reverse-mode differentiation of a list of operations.
#include <cstddef>
#include <vector>

#include "program.h"

namespace headroom::formula {
namespace {

class Reverse {
 public:
  explicit Reverse(const Program& score) : score_(score) {
    for (const Node& node : score.nodes) {
      own_.push_back(out_.add(renumbered(node, own_)));
    }
    by_.assign(score.nodes.size(), -1);
  }

  Derivative run() {
    const int last = score_.outputs[0];
    by_[static_cast<std::size_t>(last)] = out_.constant(1.0);
    Derivative result;
    int by_s = out_.constant(0.0);
    std::vector<int> outputs, loads, by_loads;
    for (int id = last; id >= 0; --id) {
      const Node& node = score_.nodes[static_cast<std::size_t>(id)];
      const int by = by_[static_cast<std::size_t>(id)];
      if (by < 0 || (out_.node(by).op == Op::constant && out_.node(by).constant == 0.0)) {
        continue;
      }
      if (node.op == Op::s) {
        by_s = by;
      } else if (is_load(node.op)) {
        loads.push_back(own(id));
        by_loads.push_back(by);
      } else {
        backward(node, own(id), by);
      }
    }
    outputs = {own(last), by_s};
    outputs.insert(outputs.end(), by_loads.begin(), by_loads.end());
    outputs.insert(outputs.end(), loads.begin(), loads.end());
    result.program = out_.build(outputs);
    const auto first = result.program.outputs.end() - static_cast<std::ptrdiff_t>(loads.size());
    result.by.assign(first, result.program.outputs.end());
    result.program.outputs.erase(first, result.program.outputs.end());
    return result;
  }

 private:
  int own(int id) const { return own_[static_cast<std::size_t>(id)]; }
  int mul(int a, int b) { return out_.add(Op::mul, a, b); }
  void to(int operand, int value) {
    int& sum = by_[static_cast<std::size_t>(operand)];
    sum = sum < 0 ? value : out_.add(Op::add, sum, value);
  }

  // Adds d score / d operand for an operation with value y and d score / d y.
  void backward(const Node& n, int y, int d) {
    const int one = out_.constant(1.0), zero = out_.constant(0.0), half = out_.constant(0.5);
    const int a = n.a < 0 ? -1 : own(n.a), b = n.b < 0 ? -1 : own(n.b);
    const auto one_minus = [&](int x) { return out_.add(Op::sub, one, x); };
    switch (n.op) {
      case Op::neg:
        return to(n.a, out_.add(Op::neg, d));
      case Op::abs:
        return to(n.a, mul(d, out_.add(Op::sub, out_.add(Op::lt, zero, a), out_.add(Op::lt, a, zero))));
      case Op::exp:
        return to(n.a, mul(d, y));
      case Op::log:
        return to(n.a, out_.add(Op::div, d, a));
      case Op::log1p:
        return to(n.a, out_.add(Op::div, d, out_.add(Op::add, one, a)));
      case Op::sqrt:
        return to(n.a, out_.add(Op::div, mul(d, half), y));
      case Op::tanh:
        return to(n.a, mul(d, one_minus(mul(y, y))));
      case Op::sigmoid:
        return to(n.a, mul(d, mul(y, one_minus(y))));
      case Op::log_sigmoid:
        return to(n.a, mul(d, out_.add(Op::sigmoid, out_.add(Op::neg, a))));
      case Op::softplus:
        return to(n.a, mul(d, out_.add(Op::sigmoid, a)));
      case Op::relu:
        return to(n.a, mul(d, out_.add(Op::lt, zero, a)));
      case Op::power: {
        const Node lower{Op::power, a, -1, -1, n.constant - 1.0};
        return to(n.a, mul(d, mul(out_.constant(n.constant), n.constant == 0.0 ? zero : out_.add(lower))));
      }
      case Op::add:
        return to(n.a, d), to(n.b, d);
      case Op::sub:
        return to(n.a, d), to(n.b, out_.add(Op::neg, d));
      case Op::mul:
        return to(n.a, mul(d, b)), to(n.b, mul(d, a));
      case Op::div: {
        const Node divisor = out_.node(b);
        const int quotient =
            divisor.op == Op::constant ? mul(d, out_.constant(1.0 / divisor.constant)) : out_.add(Op::div, d, b);
        return to(n.a, quotient), to(n.b, out_.add(Op::neg, mul(quotient, y)));
      }
      case Op::remainder:
        return to(n.a, d), to(n.b, out_.add(Op::neg, mul(d, out_.add(Op::floor_div, a, b))));
      case Op::min:
      case Op::max: {  // equal operands share the derivative
        const int less = n.op == Op::min ? out_.add(Op::lt, a, b) : out_.add(Op::lt, b, a);
        const int equal = out_.add(Op::eq, a, b), first = out_.add(Op::where, equal, half, less);
        return to(n.a, mul(d, first)), to(n.b, mul(d, one_minus(first)));
      }
      case Op::where:
        return to(n.b, out_.add(Op::where, a, d, zero)), to(n.c, out_.add(Op::where, a, zero, d));
      default:
        return;  // piecewise constant
    }
  }

  const Program& score_;
  Builder out_;
  std::vector<int> own_;  // numbers of the score's nodes in `out_`
  std::vector<int> by_;   // d score / d node, -1 if not known
};

}  // namespace

Derivative derivative(const Program& score) {
  return Reverse(score).run();
}

}  // namespace headroom::formula
