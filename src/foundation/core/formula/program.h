// Formulas of attention scores and masks: a list of elementwise operations, made by parse(), and its derivative.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace headroom::formula {

enum class Op {
  // Inputs. `index` counts the learned values, tables and token terms, each kind from 0.
  constant,
  s,        // the scaled product of query and key
  i,        // position of the query
  j,        // position of the key
  h,        // head
  learned,  // a number for each head
  table,    // element [head, a] of a table; a is rounded down and clamped to the table, NaN is 0
  token_i,  // a number for each query and head
  token_j,  // a number for each key and head
// Elementwise operations of a, and of a and b. Booleans are 1 or 0.
#define HEADROOM_UNARY(op, ...) op,
#define HEADROOM_BINARY HEADROOM_UNARY
#include "operations.inc"
  where,  // a ? b : c
};

struct Node {
  Op op = Op::constant;
  int a = -1, b = -1, c = -1;  // operands: earlier nodes, -1 if not used
  double constant = 0.0;       // a power's exponent
  int index = 0;
};

// The node with operands numbers[a], numbers[b] and numbers[c].
Node renumbered(Node node, const std::vector<int>& numbers);

bool is_boolean(Op op);
bool is_load(Op op);  // learned, table, token_i, token_j
std::string name(Op op);

// The value of an operation that is not an input.
double apply(const Node& node, double a, double b, double c);

struct Program {
  std::vector<Node> nodes;
  std::vector<int> outputs;

  const Node& output() const { return nodes[static_cast<std::size_t>(outputs[0])]; }
};

// Appends nodes. Equal nodes are shared and operations on constants are computed.
class Builder {
 public:
  int add(Node node);
  int constant(double value) { return add({Op::constant, -1, -1, -1, value}); }
  int add(Op op, int a, int b = -1, int c = -1) { return add(Node{op, a, b, c}); }
  const Node& node(int id) const { return nodes_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return nodes_.size(); }
  // The nodes that the outputs need.
  Program build(const std::vector<int>& outputs) const;

 private:
  int simplified(const Node& node);  // an equal node or -1
  int product_with_constants(const Node& node);
  bool is(int id, double value) const { return node(id).op == Op::constant && node(id).constant == value; }

  std::vector<Node> nodes_;
  std::map<std::tuple<Op, int, int, int, double, int>, int> known_;
};

// Outputs of `program`: the score, its derivative by s, then its derivative by each node of `by`, which are the loads
// of the program on which the score depends. Two loads of one table have a derivative each.
struct Derivative {
  Program program;
  std::vector<int> by;
};
Derivative derivative(const Program& score);

// What a name in a formula means.
struct Name {
  enum class Kind { learned, table, token } kind = Kind::learned;
  int index = 0;      // a token term is both token_i and token_j of this number
  bool heads = true;  // a table's: written name[h, index]; otherwise name[index]
};
struct Names {
  std::map<std::string, Name> names;
  int n_heads = 1, d_head = 1;
};

// Whether a learned value can have this name: letters, digits and _, and not a word of the language.
bool is_free_name(const std::string& name);

// Parses assignments `name = expression;` and a last expression, which is the result: a number, or a comparison if
// `mask` is set, which cannot read s. Constants may be infinite, but not NaN. Throws UserError, starting with `place`.
Program parse(const std::string& text, const Names& names, bool mask, const std::string& place);

// The program as a text for parse() with Canonical names: learned0, table0[index], token0(i), token0(j).
std::string to_text(const Program& program);
// Names of to_text() for a number of learned values, tables (without a head in their index) and token terms.
Names canonical(int learned, int tables, int tokens);

constexpr std::size_t kMaxOperations = 256;
constexpr int kMaxDepth = 64;

}  // namespace headroom::formula
