// Attention whose scores are a formula of the scaled dot products, with a second formula as a mask. attention.cc calls
// this for a block's rows instead of the softmax of the dot products.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "attention_block.h"
#include "formula_plan.h"

namespace headroom::kernels {

// A mask's visible keys: for each row the range [low, high) from the first to the last, and for each block of
// kBlockRows queries and kColumnStep keys whether none, some or all keys in the rows' ranges are visible.
struct MaskBlocks {
  enum Class : std::uint8_t { none, some, all };
  struct Range {
    std::int64_t low = 0, high = 0;
  };
  std::int64_t batch, heads;   // 1 each if the mask does not depend on them
  std::int64_t rows, columns;  // blocks
  std::vector<Class> classes;  // [batch, heads, rows, columns]
  std::vector<Range> ranges;   // [batch, heads, rows, kBlockRows]
  std::int64_t tasks() const { return batch * heads * rows; }
  std::int64_t task(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return ((batch == 1 ? 0 : b) * heads + (heads == 1 ? 0 : h)) * rows + row;
  }
  const Class* classes_of(std::int64_t task) const { return classes.data() + task * columns; }
  const Range* ranges_of(std::int64_t task) const { return ranges.data() + task * kBlockRows; }
};

struct ScoreFormula {
  std::optional<FormulaPlan> score, mask;
  // Outputs: the score, its derivative by s and by each of `by`, the indices of tables among `by`.
  std::optional<FormulaPlan> derivative;
  std::vector<int> by;                          // the tensors' nodes
  bool normalise = true;                        // false: the weights are the formula's values
  std::int64_t first_query = 0, first_key = 0;  // positions
  FormulaReads reads;
  std::optional<MaskBlocks> blocks;  // if not set, every block is of class `some`

  // Null `s`: the score is s itself. Null `derived`: no gradients. Null `m`: the mask shows every key.
  ScoreFormula(const formula::Program* s, const formula::Derivative* derived, const formula::Program* m, bool softmax);
};

// Makes room for the mask's classes. classify() computes tasks [begin, end) of MaskBlocks::tasks().
void make_blocks(const AttentionShape& s, ScoreFormula& formula);
void classify(const AttentionShape& s, ScoreFormula& formula, std::int64_t begin, std::int64_t end);

// The rows of scores that one thread computes.
class FormulaRows {
 public:
  FormulaRows(const AttentionShape& s, const ScoreFormula& formula, bool backward);
  void start(std::int64_t b, std::int64_t h);
  // Returns the block with the columns that the mask does not hide. The functions below refer to its rows.
  const ScoreBlock& start_block(const Extent& e);

  // Replaces raw scores by weights, to be multiplied by inverse_of(*sum). Returns the logarithm of the softmax's sum.
  float weigh(std::int64_t i, const float* key_bias, float* scores, float* sum);
  // Replaces raw scores by weights, and d_p by the gradients of the raw scores. Accumulates the other gradients.
  void weigh_backward(std::int64_t i, const float* key_bias, float log_sum, float delta, float* scores, float* d_p);
  // Adds the gradients accumulated for this head to `to`.
  void add_gradients(const FormulaGradients& to);

 private:
  // Columns [at, at + n) of the block, keys [key, key + n).
  struct Span {
    std::int64_t at, key, n;
    bool masked;
  };
  // A load in the derivative. `along` belongs to the index of a table, otherwise to the load.
  struct Load {
    formula::Node node;
    int partial, index;  // outputs; index -1: not a table
    Along along;
    Buffer sums;  // gradient, for each element along it; along pairs, for each element of the table
  };
  ScoreRow visible_row(std::int64_t i) const;
  // Calls body(span) for the visible spans of a row, each with at most FormulaValues::kMostKeys keys.
  template <class Body>
  void for_spans(const ScoreRow& row, const Body& body) const;
  // Replaces raw scores by scores. Hidden keys get -infinity or, without a softmax, 0; likewise 0 in d_p if set.
  ScoreRow scores_of_row(std::int64_t i, const float* key_bias, float* scores, float* d_p);
  void formula_of_span(const Span& span, float* scores);
  FormulaValue result_of(std::size_t output, const Span& span);
  int mask_output() const { return formula_.mask->program.outputs[0]; }
  void add_sums(const ScoreRow& row, const float* g);

  AttentionShape shape_;
  const ScoreFormula& formula_;
  const FormulaPlan* plan_;  // of score_
  std::int64_t b_ = 0, h_ = 0, query_ = 0;
  std::optional<FormulaValues> score_, mask_;
  Extent extent_ = {};
  ScoreBlock block_;
  std::vector<Span> spans_;
  const MaskBlocks::Range* ranges_ = nullptr;  // of the block's rows; null without a classified mask
  std::map<int, Buffer> results_;              // [columns] of each further output along pairs
  bool in_place_ = false;                      // the score overwrites the raw scores
  std::vector<Load> loads_;
};

}  // namespace headroom::kernels
