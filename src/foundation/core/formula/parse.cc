// Recursive descent. Lowest precedence first: or; and; not; comparison; + -; * / // %; unary minus; **; values.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "program.h"

namespace headroom::formula {
namespace {

constexpr Op kFunctions[] = {Op::abs,      Op::exp,         Op::log,  Op::log1p, Op::sqrt, Op::tanh, Op::sigmoid,
                             Op::softplus, Op::log_sigmoid, Op::relu, Op::min,   Op::max,  Op::where};
constexpr Op kInputs[] = {Op::s, Op::i, Op::j, Op::h};
// All words of the language.
std::vector<std::string> words() {
  std::vector<std::string> all = {"and", "or", "not", "n_heads", "d_head", "inf"};
  std::ranges::transform(kInputs, std::back_inserter(all), name);
  std::ranges::transform(kFunctions, std::back_inserter(all), name);
  return all;
}

constexpr int kNot = 2, kComparisons = 3, kProducts = 5;  // levels of precedence; "or" is 0
struct Infix {
  std::string_view symbol;
  int level;
  Op op;
  bool booleans = false, swapped = false, negated = false;
};
constexpr Infix kInfixes[] = {{"or", 0, Op::logical_or, true},
                              {"and", 1, Op::logical_and, true},
                              {"<", kComparisons, Op::lt},
                              {"<=", kComparisons, Op::le},
                              {">", kComparisons, Op::lt, false, true},
                              {">=", kComparisons, Op::le, false, true},
                              {"==", kComparisons, Op::eq},
                              {"!=", kComparisons, Op::eq, false, false, true},
                              {"+", 4, Op::add},
                              {"-", 4, Op::sub},
                              {"*", kProducts, Op::mul},
                              {"/", kProducts, Op::div},
                              {"//", kProducts, Op::floor_div},
                              {"%", kProducts, Op::remainder}};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Parser {
 public:
  Parser(const std::string& text, const Names& names, bool mask, const std::string& place)
      : text_(text), names_(names), mask_(mask), place_(place) {
    next();
    if (!mask) {
      out_.add(Op::s, -1);  // the kernels load s before the first operation
    }
  }

  Program program() {
    while (!token_.empty() && is_letter(token_[0]) && after_token() == '=') {
      const std::string name(token_);
      if (!is_free_name(name) || values_.contains(name) || names_.names.contains(name)) {
        wrong("a new name before =");
      }
      next();
      next();
      const int value = either();
      values_[name] = value;
      expect(";");
    }
    const std::size_t start = start_;
    const int value = typed(either(), mask_, start);
    if (!token_.empty()) {
      wrong("an operator or the end");
    }
    return out_.build({value});
  }

 private:
  // The first character after the token that is not a space; ' ' if the next two are "==".
  char after_token() const {
    const std::size_t at = text_.find_first_not_of(' ', end_);
    return at == std::string::npos || text_.compare(at, 2, "==") == 0 ? ' ' : text_[at];
  }

  void next() {
    start_ = std::min(text_.find_first_not_of(" \t\n", end_), text_.size());
    end_ = start_;
    const auto at = [&](std::size_t p) { return p < text_.size() ? text_[p] : '\0'; };
    if (is_letter(at(start_))) {
      while (is_letter(at(end_)) || is_digit(at(end_))) {
        ++end_;
      }
    } else if (is_digit(at(start_)) || at(start_) == '.') {
      while (is_digit(at(end_)) || at(end_) == '.' || at(end_) == 'e' || at(end_) == 'E' ||
             ((at(end_) == '-' || at(end_) == '+') && (at(end_ - 1) == 'e' || at(end_ - 1) == 'E'))) {
        ++end_;
      }
    } else if (start_ < text_.size()) {
      end_ = start_ + 1;
      for (const std::string_view two : {"**", "//", "<=", ">=", "==", "!="}) {
        end_ = text_.compare(start_, 2, two) == 0 ? start_ + 2 : end_;
      }
    }
    token_ = std::string_view(text_).substr(start_, end_ - start_);
  }

  bool accept(std::string_view symbol) {
    const bool found = token_ == symbol;
    if (found) {
      next();
    }
    return found;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) {
      wrong(symbol);
    }
  }
  [[noreturn]] void wrong(std::string_view expected) const {
    user_error("{}column {}: expected {}, got {}", place_, start_ + 1, std::string(expected),
               token_.empty() ? "the end" : std::string(token_));
  }

  int add(Op op, int a, int b = -1, int c = -1) { return add(Node{op, a, b, c}); }
  int add(const Node& node) {
    if (out_.size() >= kMaxOperations) {
      user_error("{}more than {} operations", place_, kMaxOperations);
    }
    const int value = out_.add(node);
    if (std::isnan(out_.node(value).constant)) {
      user_error("{}column {}: {} of these constants is not a number", place_, start_ + 1, formula::name(node.op));
    }
    return value;
  }
  // `value`, whose text begins at `start`, if it is a number, or a comparison if `boolean`.
  int typed(int value, bool boolean, std::size_t start) const {
    const Node& node = out_.node(value);
    const bool constant = node.op == Op::constant && (node.constant == 0.0 || node.constant == 1.0);
    if (is_boolean(node.op) != boolean && !(boolean && constant)) {
      user_error("{}column {}: expected a {}", place_, start + 1,
                 boolean ? "comparison, got a number" : "number, got a comparison");
    }
    return value;
  }

  // Parses with `operand`, a level of higher precedence, and checks the type of its value.
  template <class Operand>
  int checked(bool boolean, const Operand& operand) {
    const std::size_t start = start_;
    return typed(operand(), boolean, start);
  }
  int number() {
    return checked(false, [&] { return either(); });
  }

  void deeper() {
    if (++depth_ > kMaxDepth) {
      user_error("{}column {}: deeper than {} levels", place_, start_ + 1, kMaxDepth);
    }
  }
  // An operand of an infix operator of this level.
  int expression(int level) {
    if (level == kNot && accept("not")) {
      deeper();
      const int value = add(Op::logical_not, checked(true, [&] { return expression(kNot); }));
      --depth_;
      return value;
    }
    if (level > kProducts) {
      return factor();
    }
    const std::size_t start = start_;
    int value = expression(level + 1);
    for (const Infix* infix = infix_of(level); infix != nullptr; infix = infix_of(level)) {
      next();
      typed(value, infix->booleans, start);
      const int other = checked(infix->booleans, [&] { return expression(level + 1); });
      value = infix->swapped ? add(infix->op, other, value) : add(infix->op, value, other);
      value = infix->negated ? add(Op::logical_not, value) : value;
      if (level == kComparisons) {
        break;
      }
    }
    return value;
  }
  const Infix* infix_of(int level) const {
    const Infix* found = std::ranges::find_if(
        kInfixes, [&](const Infix& infix) { return infix.level == level && infix.symbol == token_; });
    return found == std::end(kInfixes) ? nullptr : found;
  }
  int either() {
    deeper();
    const int value = expression(0);
    --depth_;
    return value;
  }
  int factor() {
    bool odd = false, any = false;
    for (; accept("-"); any = true) {
      odd = !odd;
    }
    const std::size_t start = start_;
    int value = this->value();
    if (accept("**")) {
      typed(value, false, start);
      const std::size_t exponent_start = start_;
      deeper();
      const Node exponent = out_.node(factor());
      --depth_;
      if (exponent.op != Op::constant) {
        user_error("{}column {}: expected a constant exponent", place_, exponent_start + 1);
      }
      value = add(Node{Op::power, value, -1, -1, exponent.constant});
    }
    if (any) {
      typed(value, false, start);
    }
    return odd ? add(Op::neg, value) : value;
  }

  int value() {
    if (accept("(")) {
      const int inner = either();
      expect(")");
      return inner;
    }
    if (token_.empty() || !(is_letter(token_[0]) || is_digit(token_[0]) || token_[0] == '.')) {
      wrong("a value");
    }
    if (is_letter(token_[0])) {
      return named();
    }
    double number = 0.0;
    const auto [end, error] = std::from_chars(token_.data(), token_.data() + token_.size(), number);
    if (error != std::errc() || end != token_.data() + token_.size()) {
      wrong("a number");
    }
    next();
    return out_.constant(number);
  }

  int named() {
    const std::string name(token_);
    if (mask_ && name == "s") {
      user_error("{}column {}: a mask cannot read s", place_, start_ + 1);
    }
    for (const Op input : kInputs) {
      if (accept(formula::name(input))) {
        return add(input, -1);
      }
    }
    if (accept("inf")) {
      return out_.constant(std::numeric_limits<double>::infinity());
    }
    if (accept("n_heads") || accept("d_head")) {
      return out_.constant(name == "n_heads" ? names_.n_heads : names_.d_head);
    }
    for (const Op function : kFunctions) {
      if (accept(formula::name(function))) {
        return call(function);
      }
    }
    if (const auto found = values_.find(name); found != values_.end()) {
      next();
      return found->second;
    }
    if (const auto found = names_.names.find(name); found != names_.names.end()) {
      next();
      return load(found->second);
    }
    if (!is_free_name(name)) {
      wrong("a value");
    }
    const std::string close = nearest(name, known());
    user_error("{}column {}: unknown name {}{}", place_, start_ + 1, name,
               close.empty() ? "" : ", did you mean " + close + "?");
  }

  int call(Op op) {
    expect("(");
    const int a = op == Op::where ? checked(true, [&] { return either(); }) : number();
    int b = -1, c = -1;
    if (op == Op::where || op == Op::min || op == Op::max) {
      expect(",");
      b = number();
    }
    if (op == Op::where) {
      expect(",");
      c = number();
    }
    expect(")");
    return add(op, a, b, c);
  }

  int load(const Name& name) {
    if (name.kind == Name::Kind::learned) {
      return add(Node{Op::learned, -1, -1, -1, 0.0, name.index});
    }
    if (name.kind == Name::Kind::token) {
      expect("(");
      const Op op = token_ == "i" ? Op::token_i : Op::token_j;
      if (!accept("i") && !accept("j")) {
        wrong("i or j");
      }
      expect(")");
      return add(Node{op, -1, -1, -1, 0.0, name.index});
    }
    expect("[");
    if (name.heads) {
      expect("h");
      expect(",");
    }
    const int index = number();
    expect("]");
    return add(Node{Op::table, index, -1, -1, 0.0, name.index});
  }

  std::vector<std::string> known() const {
    std::vector<std::string> all = words();
    for (const auto& [name, value] : values_) {
      all.push_back(name);
    }
    for (const auto& [name, value] : names_.names) {
      all.push_back(name);
    }
    return all;
  }

  const std::string& text_;
  const Names& names_;
  const bool mask_;
  const std::string& place_;
  std::size_t start_ = 0, end_ = 0;
  std::string_view token_;
  int depth_ = 0;
  std::map<std::string, int> values_;  // of assigned names
  Builder out_;
};

}  // namespace

bool is_free_name(const std::string& name) {
  const std::vector<std::string> taken = words();
  return !name.empty() && is_letter(name[0]) && std::ranges::find(taken, name) == taken.end() &&
         std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); });
}

Program parse(const std::string& text, const Names& names, bool mask, const std::string& place) {
  return Parser(text, names, mask, place).program();
}

}  // namespace headroom::formula
