// Which of a formula's operations are computed once per head, for a range of queries, keys or distances, and which for
// every pair of query and key; and the values of both.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "engine/kernels/cpu/matmul/matrix.h"
#include "formula_steps.h"

namespace headroom::kernels {

// What a node's value depends on within a head.
enum class Along { head, query, key, distance, pair };
constexpr std::size_t kAlongs = 5;

struct FormulaPlan {
  explicit FormulaPlan(const formula::Program& given);

  formula::Program program;
  std::vector<Along> along;  // of each node
  // The node that is the dot products times a factor: s or, if no other node reads s, a multiple of it; -1: none.
  int scores = -1;
  float scores_factor = 1.0F;
  // Two values more than nodes: the dot products, and the factor that makes them `scores`.
  int products() const { return static_cast<int>(program.nodes.size()); }
  int products_factor() const { return products() + 1; }
  std::array<std::vector<FormulaStep>, kAlongs> steps;  // by what their results vary along
  std::vector<int> inputs;  // nodes not along pairs that are outputs or that the steps of pairs read, ascending

  Along along_of(int node) const { return along[static_cast<std::size_t>(node)]; }

 private:
  const formula::Node& node_of(int node) const { return program.nodes[static_cast<std::size_t>(node)]; }
  void find_scores();
  std::vector<FormulaStep> steps_of(Along part, const std::vector<int>& results) const;

  std::vector<bool> of_scores_;
};

// Strided float32 views of the tensors that a formula reads. A stride may be 0.
struct FormulaRead {
  const float* data = nullptr;
  std::int64_t batch = 0, head = 0, size = 1;
};
struct FormulaReads {
  std::vector<FormulaRead> learned, tables, tokens;  // size: 1, entries of the table, S; queries are the last T tokens
  const FormulaRead* of(const formula::Node& node) const;  // the tensor of a load; null for other nodes
};

// The values of a plan's nodes in one head, for one thread.
class FormulaValues {
 public:
  static constexpr std::int64_t kMostKeys = 512;  // in a call of run(): the values of a few nodes then fit in L1

  FormulaValues(const FormulaPlan& plan, const AttentionShape& s, std::int64_t first_query, std::int64_t first_key,
                const FormulaReads& reads);
  void start(std::int64_t b, std::int64_t h);
  void start_row(std::int64_t query);
  // Makes run() write the values of a node that varies along pairs to `to`, starting with the first key of the call.
  // By default, run() writes them to this object's own memory.
  void set_result(int node, float* to) { value(node) = {to, 1}; }
  // Computes the row's pairs with keys [key, key + n) from their dot products. n is a multiple of kFormulaLanes.
  void run(std::int64_t key, std::int64_t n, float* products);
  // Returns the values for the row's keys from `key` on. A node along pairs has the values of the last run().
  FormulaValue value_at(int node, std::int64_t key) const;
  // Returns all values of a node along queries, keys or distances: element q, k or distance_at(q) + k.
  const float* all(int node) const { return base_[static_cast<std::size_t>(node)]; }
  std::int64_t distance_at(std::int64_t query) const { return queries_ - 1 - query; }
  std::int64_t length(Along along) const;

 private:
  void compute(Along along);
  std::int64_t padded_length(Along along) const;
  float* equal(int node) { return equal_.data() + node * kFormulaLanes; }
  FormulaValue register_of(int node) { return {registers_.data() + node * kMostKeys, 1}; }
  FormulaValue& value(int node) { return values_[static_cast<std::size_t>(node)]; }

  const FormulaPlan& plan_;
  const FormulaReads& reads_;
  std::int64_t queries_, keys_, query_ = 0;
  Buffer registers_, equal_, distances_;
  std::vector<Buffer> kept_;  // of each node
  std::vector<FormulaTable> tables_;
  std::vector<float*> base_;
  std::vector<FormulaValue> values_;
};

}  // namespace headroom::kernels
