#include "formula_plan.h"

#include <algorithm>
#include <numeric>

#include "foundation/core/ceil_div.h"

namespace headroom::kernels {
namespace {

using formula::Node;
using formula::Op;

std::size_t index_of(Along along) {
  return static_cast<std::size_t>(along);
}

bool is_leaf(Op op) {
  return op <= Op::token_j && op != Op::table;
}

Along together(Along a, Along b) {
  return a == Along::head || a == b ? b : b == Along::head ? a : Along::pair;
}

template <class Operation, class Body>  // Node or FormulaStep
void for_operands(const Operation& node, const Body& body) {
  for (const int operand : {node.a, node.b, node.c}) {
    if (operand >= 0) {
      body(operand);
    }
  }
}

Along of_leaf(Op op) {
  return op == Op::s                        ? Along::pair
         : op == Op::i || op == Op::token_i ? Along::query
         : op == Op::j || op == Op::token_j ? Along::key
                                            : Along::head;
}

// Returns how often each node is an operand or an output.
std::vector<int> uses_of(const formula::Program& program) {
  std::vector<int> uses(program.nodes.size(), 0);
  const auto use = [&](int node) { ++uses[static_cast<std::size_t>(node)]; };
  std::ranges::for_each(program.outputs, use);
  for (const Node& node : program.nodes) {
    for_operands(node, use);
  }
  return uses;
}

// Whether an operation of the two positions i and j depends only on their distance.
bool is_of_distance(Op op) {
  return op == Op::sub || op == Op::lt || op == Op::le || op == Op::eq;
}

}  // namespace

const FormulaRead* FormulaReads::of(const Node& node) const {
  return node.op == Op::learned      ? &learned[static_cast<std::size_t>(node.index)]
         : node.op == Op::table      ? &tables[static_cast<std::size_t>(node.index)]
         : formula::is_load(node.op) ? &tokens[static_cast<std::size_t>(node.index)]
                                     : nullptr;
}

FormulaPlan::FormulaPlan(const formula::Program& given) : program(given) {
  for (const Node& node : program.nodes) {
    Along own = of_leaf(node.op);
    bool of_scores = node.op == Op::s, of_positions = is_of_distance(node.op);
    for_operands(node, [&](int operand) {
      own = together(own, along_of(operand));
      of_scores = of_scores || of_scores_[static_cast<std::size_t>(operand)];
      of_positions = of_positions && (node_of(operand).op == Op::i || node_of(operand).op == Op::j);
    });
    of_scores_.push_back(of_scores);
    along.push_back(of_positions ? Along::distance : own);
  }
  find_scores();
  steps[index_of(Along::pair)] = steps_of(Along::pair, program.outputs);
  std::vector<bool> read(program.nodes.size(), false);
  const auto needs = [&](int node) {
    if (node < products()) {
      read[static_cast<std::size_t>(node)] = along_of(node) != Along::pair;
    }
  };
  for (const int output : program.outputs) {
    needs(output);
  }
  for (const FormulaStep& step : steps[index_of(Along::pair)]) {
    for_operands(step, needs);
  }
  std::array<std::vector<int>, kAlongs> results;
  for (int node = 0; node < std::ssize(program.nodes); ++node) {
    if (read[static_cast<std::size_t>(node)]) {
      inputs.push_back(node);
      results[index_of(along_of(node))].push_back(node);
    }
  }
  for (const Along one : {Along::head, Along::query, Along::key, Along::distance}) {
    steps[index_of(one)] = steps_of(one, results[index_of(one)]);
  }
}

void FormulaPlan::find_scores() {
  const std::vector<int> uses = uses_of(program);
  for (int node = 0; node < std::ssize(program.nodes); ++node) {
    const Node& from = node_of(node);
    if (from.op == Op::s) {
      scores = node;
    } else if (scores >= 0 && uses[static_cast<std::size_t>(scores)] == 1 && (from.a == scores || from.b == scores)) {
      const int other = from.a == scores ? from.b : from.a;
      if ((from.op == Op::mul || (from.op == Op::div && from.a == scores)) && node_of(other).op == Op::constant) {
        const double factor = node_of(other).constant;
        scores_factor = static_cast<float>(from.op == Op::mul ? factor : 1.0 / factor);
        scores = node;
      }
      return;
    }
  }
}

// Returns the steps of a part. Steps of pairs read the values of the other parts, which recompute what they share.
std::vector<FormulaStep> FormulaPlan::steps_of(Along part, const std::vector<int>& results) const {
  std::vector<bool> needed(program.nodes.size() + 2, false);
  const auto need = [&](int node) { needed[static_cast<std::size_t>(node)] = true; };
  std::ranges::for_each(results, need);
  const auto is_step = [&](int node) {
    return node == scores ? part == Along::pair
                          : !is_leaf(node_of(node).op) && (part != Along::pair || along_of(node) == Along::pair);
  };
  const std::vector<int> uses = uses_of(program);
  const auto step_of = [&](int node) {
    const Node& from = node_of(node);
    FormulaStep step{from.op,    node,
                     from.a,     from.b,
                     from.c,     static_cast<float>(from.constant),
                     from.index, of_scores_[static_cast<std::size_t>(node)]};
    if (node == scores) {
      step = {Op::mul, node, products(), products_factor(), -1};
    }
    for (const int product : {from.b, from.a}) {  // a product that only this sum reads becomes part of it
      if ((from.op == Op::add || from.op == Op::sub) && step.c < 0 && is_step(product) &&
          (product == scores || node_of(product).op == Op::mul) && uses[static_cast<std::size_t>(product)] == 1) {
        step.op = from.op == Op::sub && product == from.a ? Op::mul : from.op;
        step.a = product == scores ? products() : node_of(product).a;
        step.b = product == scores ? products_factor() : node_of(product).b;
        step.c = product == from.a ? from.b : from.a;
      }
    }
    return step;
  };
  std::vector<FormulaStep> all;
  for (int node = products() - 1; node >= 0; --node) {
    if (needed[static_cast<std::size_t>(node)] && is_step(node)) {
      all.push_back(step_of(node));
      for_operands(all.back(), need);
    }
  }
  std::ranges::reverse(all);
  return all;
}

FormulaValues::FormulaValues(const FormulaPlan& plan, const AttentionShape& s, std::int64_t first_query,
                             std::int64_t first_key, const FormulaReads& reads)
    : plan_(plan),
      reads_(reads),
      queries_(s.queries),
      keys_(s.keys),
      kept_(plan.program.nodes.size()),
      tables_(reads.tables.size()),
      base_(plan.program.nodes.size(), nullptr),
      values_(plan.program.nodes.size() + 2) {
  registers_.reserve(plan.products() * kMostKeys);
  // One run() may read and write up to a whole block of columns beyond the last key.
  distances_.reserve(padded_length(Along::distance));
  for (std::int64_t m = 0; m < distances_.size(); ++m) {
    distances_.data()[m] = static_cast<float>(first_query + queries_ - 1 - first_key - m);
  }
  equal_.reserve(std::ssize(values_) * kFormulaLanes);
  equal_.fill(0.0F);
  std::fill_n(equal(plan.products_factor()), kFormulaLanes, s.scale * plan.scores_factor);
  value(plan.products_factor()) = {equal(plan.products_factor()), 0};
  for (int node = 0; node < std::ssize(plan.program.nodes); ++node) {
    const Op op = plan.program.nodes[static_cast<std::size_t>(node)].op;
    const Along along = plan.along_of(node);
    Buffer& kept = kept_[static_cast<std::size_t>(node)];
    float*& base = base_[static_cast<std::size_t>(node)];
    const bool is_input = std::ranges::binary_search(plan.inputs, node);
    if (along == Along::head) {
      base = equal(node);
    } else if (along != Along::pair && (is_leaf(op) || is_input)) {
      kept.reserve(padded_length(along));
      std::iota(kept.data(), kept.data() + kept.size(), static_cast<float>(op == Op::i ? first_query : first_key));
      base = kept.data();
    }
  }
}

std::int64_t FormulaValues::length(Along along) const {
  return along == Along::head       ? 1
         : along == Along::query    ? queries_
         : along == Along::key      ? keys_
         : along == Along::distance ? queries_ + keys_ - 1
                                    : 0;
}

std::int64_t FormulaValues::padded_length(Along along) const {
  constexpr std::int64_t kBeyond = 64;
  return round_up(length(along), kFormulaLanes) + kBeyond;
}

void FormulaValues::start(std::int64_t b, std::int64_t h) {
  const auto start_of = [&](const FormulaRead& read) { return read.data + b * read.batch + h * read.head; };
  for (std::size_t k = 0; k < tables_.size(); ++k) {
    tables_[k] = {start_of(reads_.tables[k]), reads_.tables[k].size};
  }
  for (int id = 0; id < std::ssize(plan_.program.nodes); ++id) {
    const Node& node = plan_.program.nodes[static_cast<std::size_t>(id)];
    if (node.op == Op::token_i || node.op == Op::token_j) {
      const std::int64_t n = length(plan_.along_of(id));
      std::copy_n(start_of(*reads_.of(node)) + keys_ - n, n, base_[static_cast<std::size_t>(id)]);
    } else if (is_leaf(node.op) && plan_.along_of(id) == Along::head) {
      std::fill_n(equal(id), kFormulaLanes,
                  node.op == Op::learned ? *start_of(*reads_.of(node))
                  : node.op == Op::h     ? static_cast<float>(h)
                                         : static_cast<float>(node.constant));
    }
  }
  for (const Along along : {Along::head, Along::query, Along::key, Along::distance}) {
    compute(along);
  }
  for (int node = 0; node < plan_.products(); ++node) {
    value(node) = std::ranges::binary_search(plan_.inputs, node) ? FormulaValue{equal(node), 0} : register_of(node);
  }
}

void FormulaValues::compute(Along along) {
  const std::vector<FormulaStep>& steps = plan_.steps[index_of(along)];
  for (std::int64_t at = 0; !steps.empty() && at < length(along); at += kMostKeys) {
    for (int node = 0; node < plan_.products(); ++node) {
      const Op op = plan_.program.nodes[static_cast<std::size_t>(node)].op;
      const Along own = plan_.along_of(node);
      float* base = base_[static_cast<std::size_t>(node)];
      if (along == Along::distance && (op == Op::i || op == Op::j)) {  // with the key at position 0
        value(node) = op == Op::i ? FormulaValue{distances_.data() + at, 1} : FormulaValue{equal(node), 0};
      } else if (is_leaf(op) && own == Along::head) {
        value(node) = {base, 0};
      } else if (base != nullptr && own == along) {
        value(node) = {base + at, 1};
      } else {
        value(node) = register_of(node);
      }
    }
    run_formula(steps, values_.data(), tables_.data(),
                std::min(kMostKeys, round_up(length(along) - at, kFormulaLanes)));
  }
}

void FormulaValues::start_row(std::int64_t query) {
  query_ = query;
  for (const int node : plan_.inputs) {
    if (plan_.along_of(node) == Along::query) {
      std::fill_n(equal(node), kFormulaLanes, all(node)[query]);
    }
  }
}

FormulaValue FormulaValues::value_at(int node, std::int64_t key) const {
  switch (plan_.along_of(node)) {
    case Along::key:
      return {base_[static_cast<std::size_t>(node)] + key, 1};
    case Along::distance:
      return {base_[static_cast<std::size_t>(node)] + distance_at(query_) + key, 1};
    default:
      return values_[static_cast<std::size_t>(node)];
  }
}

void FormulaValues::run(std::int64_t key, std::int64_t n, float* products) {
  for (const int node : plan_.inputs) {
    value(node) = value_at(node, key);
  }
  value(plan_.products()) = {products, 1};
  run_formula(plan_.steps[index_of(Along::pair)], values_.data(), tables_.data(), n);
}

}  // namespace headroom::kernels
