#include "formula_rows.h"

#include <algorithm>
#include <limits>

#include "foundation/core/ceil_div.h"

namespace headroom::kernels {
namespace {

using formula::Node;
using formula::Op;

std::optional<FormulaPlan> plan_of(const formula::Program* program) {
  return program == nullptr ? std::nullopt : std::optional<FormulaPlan>(*program);
}

Along along_of(const FormulaPlan& plan, const Node& load) {
  return load.op == Op::learned   ? Along::head
         : load.op == Op::token_i ? Along::query
         : load.op == Op::token_j ? Along::key
                                  : plan.along_of(load.a);
}

void clear_invisible(const ScoreRow& row, float* values) {
  std::fill(values, values + row.low, 0.0F);
  std::fill(values + row.high, values + row.n, 0.0F);
}

}  // namespace

ScoreFormula::ScoreFormula(const formula::Program* s, const formula::Derivative* derived, const formula::Program* m,
                           bool softmax)
    : mask(plan_of(m)), normalise(softmax) {
  if (s == nullptr || (softmax && s->output().op == Op::s)) {
    return;
  }
  score = plan_of(s);
  if (derived != nullptr) {
    formula::Program program = derived->program;
    by = derived->by;
    for (const int load : by) {
      const Node& node = program.nodes[static_cast<std::size_t>(load)];
      if (node.op == Op::table) {
        program.outputs.push_back(node.a);
      }
    }
    derivative = plan_of(&program);
  }
}

void make_blocks(const AttentionShape& s, ScoreFormula& formula) {
  if (!formula.mask) {
    return;
  }
  bool by_batch = false, by_head = false;
  for (const Node& node : formula.mask->program.nodes) {
    const FormulaRead* read = formula.reads.of(node);
    by_batch = by_batch || (read != nullptr && read->batch != 0);
    by_head = by_head || node.op == Op::h || (read != nullptr && read->head != 0);
  }
  MaskBlocks& blocks = formula.blocks.emplace(MaskBlocks{
      by_batch ? s.batch : 1, by_head ? s.heads : 1, ceil_div(s.queries, kBlockRows), ceil_div(s.keys, kColumnStep)});
  blocks.classes.assign(static_cast<std::size_t>(blocks.tasks() * blocks.columns), MaskBlocks::none);
  blocks.ranges.resize(static_cast<std::size_t>(blocks.tasks() * kBlockRows));
}

namespace {

// Finds the ranges of a block's rows and the classes of its columns. Requires mask.start() for the head.
void classify_rows(const AttentionShape& s, const FormulaPlan& plan, const Extent& e, FormulaValues& mask,
                   MaskBlocks::Range* ranges, MaskBlocks::Class* classes) {
  const int output = plan.program.outputs[0];
  std::int64_t first = e.low, last = e.low + e.columns;
  if (plan.along_of(output) == Along::distance) {  // leave out columns at both ends that no row attends to
    mask.start_row(e.row + e.rows - 1);
    const auto hidden = [&](std::int64_t key) {
      return formula_mask_range(mask.value_at(output, key), kColumnStep + e.rows - 1).count == 0;
    };
    for (; first < last && hidden(first); first += kColumnStep) {
    }
    for (; first < last && hidden(last - kColumnStep); last -= kColumnStep) {
    }
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>((last - first) / kColumnStep));
  std::vector<MaskBlocks::Class> partial(counts.size(), MaskBlocks::all);
  for (std::int64_t i = 0; i < e.rows; ++i) {
    const std::int64_t low = std::max({first, e.low, e.low + e.visible_low(s, i)});
    const std::int64_t high = std::min(last, e.low + e.visible_high(s, i));
    const auto part_of = [&](std::int64_t c, std::int64_t from, std::int64_t to) {  // the part of block c
      const std::int64_t key = first + c * kColumnStep;
      return MaskBlocks::Range{std::max(key, from), std::min(key + kColumnStep, to)};
    };
    MaskBlocks::Range& range = ranges[i] = {high, 0};
    mask.start_row(e.row + i);
    std::int64_t ran = low - FormulaValues::kMostKeys;  // first key of the last run
    for (std::int64_t c = 0; c < std::ssize(counts); ++c) {
      const MaskBlocks::Range part = part_of(c, low, high);
      counts[static_cast<std::size_t>(c)] = 0;
      if (part.low >= part.high) {
        continue;
      }
      if (part.high > ran + FormulaValues::kMostKeys) {
        ran = first + c * kColumnStep;
        mask.run(ran, std::min(FormulaValues::kMostKeys, last - ran), nullptr);
      }
      FormulaValue value = mask.value_at(output, ran);
      value.data += (part.low - ran) * value.step;
      const FormulaMaskRange seen = formula_mask_range(value, part.high - part.low);
      if (seen.count > 0) {
        counts[static_cast<std::size_t>(c)] = seen.count;
        range = {std::min(range.low, part.low + seen.low), part.low + seen.high};
        classes[first / kColumnStep + c] = MaskBlocks::all;
      }
    }
    range.low = std::min(range.low, range.high);
    for (std::int64_t c = 0; c < std::ssize(counts); ++c) {
      const MaskBlocks::Range part = part_of(c, range.low, range.high);
      if (counts[static_cast<std::size_t>(c)] != std::max<std::int64_t>(0, part.high - part.low)) {
        partial[static_cast<std::size_t>(c)] = MaskBlocks::some;
      }
    }
  }
  for (std::int64_t c = 0; c < std::ssize(counts); ++c) {
    MaskBlocks::Class& one = classes[first / kColumnStep + c];
    one = std::min(one, partial[static_cast<std::size_t>(c)]);
  }
}

}  // namespace

void classify(const AttentionShape& s, ScoreFormula& formula, std::int64_t begin, std::int64_t end) {
  MaskBlocks& blocks = *formula.blocks;
  FormulaValues mask(*formula.mask, s, formula.first_query, formula.first_key, formula.reads);
  for (std::int64_t task = begin; task < end; ++task) {
    const std::int64_t map = task / blocks.rows;
    if (task == begin || task % blocks.rows == 0) {
      mask.start(map / blocks.heads, map % blocks.heads);
    }
    const Extent e = extent_of(s, task % blocks.rows * kBlockRows);
    classify_rows(s, *formula.mask, e, mask, blocks.ranges.data() + task * kBlockRows,
                  blocks.classes.data() + task * blocks.columns);
  }
}

FormulaRows::FormulaRows(const AttentionShape& s, const ScoreFormula& formula, bool backward)
    : shape_(s),
      formula_(formula),
      plan_(!formula.score ? nullptr
            : backward     ? &*formula.derivative
                           : &*formula.score) {
  if (formula.mask) {
    mask_.emplace(*formula.mask, s, formula.first_query, formula.first_key, formula.reads);
  }
  if (plan_ == nullptr) {
    return;
  }
  score_.emplace(*plan_, s, formula.first_query, formula.first_key, formula.reads);
  const std::vector<int>& outputs = plan_->program.outputs;
  for (std::size_t k = 1; k < outputs.size(); ++k) {
    if (plan_->along_of(outputs[k]) == Along::pair) {
      results_.try_emplace(outputs[k], longest_score_stride(s));
    }
  }
  in_place_ = plan_->along_of(outputs[0]) == Along::pair && !results_.contains(outputs[0]);
  int next = 2 + static_cast<int>(formula.by.size());  // output of the next table's indices
  for (std::size_t k = 0; backward && k < formula.by.size(); ++k) {
    const Node& node = plan_->program.nodes[static_cast<std::size_t>(formula.by[k])];
    const Along along = along_of(*plan_, node);
    const std::int64_t size = along == Along::pair ? formula.reads.of(node)->size : score_->length(along);
    loads_.push_back({node, static_cast<int>(k) + 2, node.op == Op::table ? next++ : -1, along, Buffer(size + 64)});
  }
}

void FormulaRows::start(std::int64_t b, std::int64_t h) {
  b_ = b;
  h_ = h;
  if (mask_) {
    mask_->start(b, h);
  }
  if (score_) {
    score_->start(b, h);
  }
  for (Load& load : loads_) {
    load.sums.fill(0.0F);
  }
}

const ScoreBlock& FormulaRows::start_block(const Extent& e) {
  extent_ = e;
  block_ = {e, {e}};
  spans_ = {{0, e.low, e.columns, formula_.mask.has_value()}};
  if (!formula_.blocks) {
    return block_;
  }
  block_.runs.clear();
  spans_.clear();
  const std::int64_t task = formula_.blocks->task(b_, h_, e.row / kBlockRows);
  const MaskBlocks::Class* classes = formula_.blocks->classes_of(task);
  ranges_ = formula_.blocks->ranges_of(task);
  std::int64_t total = 0, after = -1;  // first key after the last run
  for (std::int64_t key = e.low; key < e.low + e.columns; key += kColumnStep) {
    const MaskBlocks::Class one = classes[key / kColumnStep];
    if (one == MaskBlocks::none) {
      continue;
    }
    const bool masked = one == MaskBlocks::some, follows = key == after;
    if (!follows) {
      block_.runs.push_back({.row = e.row, .rows = e.rows, .low = key, .at = total});
    }
    if (!follows || spans_.back().masked != masked) {
      spans_.push_back({total, key, 0, masked});
    }
    block_.runs.back().columns += kColumnStep;
    spans_.back().n += kColumnStep;
    total += kColumnStep;
    after = key + kColumnStep;
  }
  block_.all.columns = block_.all.early_columns = total;
  block_.all.late_low = 0;
  const bool has_late = e.rows > kEarlyRows;
  std::int64_t early_high = has_late ? 0 : e.low + e.columns, late_low = has_late ? shape_.keys : 0;
  for (std::int64_t i = 0; i < e.rows; ++i) {
    early_high = std::max(early_high, i < kEarlyRows ? ranges_[i].high : 0);
    late_low = std::min(late_low, i < kEarlyRows ? shape_.keys : ranges_[i].low);
  }
  for (Extent& run : block_.runs) {
    const auto in_run = [&](std::int64_t columns) { return std::clamp<std::int64_t>(columns, 0, run.columns); };
    run.together = total;
    run.early_columns = in_run(round_up(early_high - run.low, kEarlyRows));
    run.late_low = in_run((late_low - run.low) / kEarlyRows * kEarlyRows);
  }
  return block_;
}

ScoreRow FormulaRows::visible_row(std::int64_t i) const {
  // Returns the block's column of a key or, if the mask hides the key's run, of the next remaining key.
  const auto column = [&](std::int64_t key) {
    std::int64_t at = 0;
    for (const Extent& run : block_.runs) {
      at = key > run.low ? run.at + std::min(key - run.low, run.columns) : at;
    }
    return at;
  };
  const auto [first, last] =
      ranges_ != nullptr ? ranges_[i]
                         : MaskBlocks::Range{extent_.low + std::max<std::int64_t>(0, extent_.visible_low(shape_, i)),
                                             extent_.low + extent_.visible_high(shape_, i)};
  const std::int64_t low = column(first);
  return {.low = low,
          .high = std::max(low, column(last)),
          .n = block_.all.columns,
          .scale = score_ ? 1.0F : shape_.scale,
          .position = nullptr,
          .bias = nullptr};
}

template <class Body>
void FormulaRows::for_spans(const ScoreRow& row, const Body& body) const {
  const std::int64_t low = row.low / kFormulaLanes * kFormulaLanes, high = round_up(row.high, kFormulaLanes);
  for (const Span& span : spans_) {
    const std::int64_t end = std::min(high, span.at + span.n);
    for (std::int64_t at = std::max(low, span.at); at < end; at += FormulaValues::kMostKeys) {
      body(Span{at, span.key + at - span.at, std::min(FormulaValues::kMostKeys, end - at), span.masked});
    }
  }
}

FormulaValue FormulaRows::result_of(std::size_t output, const Span& span) {
  const int node = plan_->program.outputs[output];
  const auto found = results_.find(node);
  return found == results_.end() ? score_->value_at(node, span.key) : FormulaValue{found->second.data() + span.at, 1};
}

void FormulaRows::formula_of_span(const Span& span, float* scores) {
  const int output = plan_->program.outputs[0];
  if (in_place_) {
    score_->set_result(output, scores + span.at);
  }
  for (auto& [node, result] : results_) {
    score_->set_result(node, result.data() + span.at);
  }
  score_->run(span.key, span.n, scores + span.at);
  if (!in_place_) {
    const FormulaValue value = score_->value_at(output, span.key);
    for (std::int64_t k = 0; k < span.n; ++k) {
      scores[span.at + k] = value.data[k * value.step];
    }
  }
}

ScoreRow FormulaRows::scores_of_row(std::int64_t i, const float* key_bias, float* scores, float* d_p) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float hidden = formula_.normalise ? -kInfinity : 0.0F;
  query_ = extent_.row + i;
  if (score_) {
    score_->start_row(query_);
  }
  if (mask_) {
    mask_->start_row(query_);
  }
  const ScoreRow row = visible_row(i);
  for_spans(row, [&](const Span& span) {
    if (score_) {
      formula_of_span(span, scores);
    }
    if (span.masked) {
      mask_->run(span.key, span.n, nullptr);
      const FormulaValue mask = mask_->value_at(mask_output(), span.key);
      formula_hide(mask, hidden, span.n, scores + span.at);
      if (d_p != nullptr && !formula_.normalise) {
        formula_hide(mask, 0.0F, span.n, d_p + span.at);
      }
    }
    for (std::int64_t k = 0; key_bias != nullptr && k < std::min(span.n, shape_.keys - span.key); ++k) {
      if (key_bias[b_ * shape_.keys + span.key + k] == -kInfinity) {
        scores[span.at + k] = hidden;
        if (d_p != nullptr && !formula_.normalise) {
          d_p[span.at + k] = 0.0F;
        }
      }
    }
  });
  return row;
}

float FormulaRows::weigh(std::int64_t i, const float* key_bias, float* scores, float* sum) {
  const ScoreRow row = scores_of_row(i, key_bias, scores, nullptr);
  if (formula_.normalise) {
    return exp_row(row, scores, sum);
  }
  clear_invisible(row, scores);
  *sum = 1.0F;
  return 0.0F;
}

void FormulaRows::weigh_backward(std::int64_t i, const float* key_bias, float log_sum, float delta, float* scores,
                                 float* d_p) {
  const ScoreRow row = scores_of_row(i, key_bias, scores, d_p);
  if (formula_.normalise) {
    exp_row_backward(row, log_sum, delta, scores, d_p);
  } else {
    clear_invisible(row, scores);
    clear_invisible(row, d_p);
  }
  if (score_) {
    add_sums(row, d_p);
    for_spans(row,
              [&](const Span& span) { formula_multiply(result_of(1, span), shape_.scale, span.n, d_p + span.at); });
  }
}

void FormulaRows::add_sums(const ScoreRow& row, const float* g) {
  for (Load& load : loads_) {
    float* sums = load.sums.data();
    for_spans(row, [&](const Span& span) {
      const FormulaValue partial = result_of(static_cast<std::size_t>(load.partial), span);
      const float* g_span = g + span.at;
      if (load.along == Along::head || load.along == Along::query) {
        sums[load.along == Along::query ? query_ : 0] += formula_dot(g_span, partial, span.n);
      } else if (load.along == Along::key || load.along == Along::distance) {
        const std::int64_t first = load.along == Along::distance ? score_->distance_at(query_) : 0;
        formula_add(g_span, partial, span.n, sums + first + span.key);
      } else {
        const std::int64_t size = formula_.reads.of(load.node)->size;
        const float* index = result_of(static_cast<std::size_t>(load.index), span).data;
        for (std::int64_t k = 0; k < span.n; ++k) {
          if (g_span[k] != 0.0F) {
            sums[formula_index(index[k], size)] += g_span[k] * partial.data[k * partial.step];
          }
        }
      }
    });
  }
}

void FormulaRows::add_gradients(const FormulaGradients& to) {
  const std::int64_t task = b_ * shape_.heads + h_;
  for (const Load& load : loads_) {
    const auto k = static_cast<std::size_t>(load.node.index);
    const float* sums = load.sums.data();
    const auto add = [&](float* head, std::int64_t n) {
      for (std::int64_t m = 0; m < n; ++m) {
        head[m] += sums[m];
      }
    };
    if (load.node.op == Op::learned) {
      add(to.learned[k] + task, 1);
    } else if (load.node.op != Op::table) {
      const std::int64_t n = score_->length(load.along);
      add(to.tokens[k] + (task + 1) * shape_.keys - n, n);
    } else {
      const std::int64_t size = formula_.reads.of(load.node)->size;
      float* head = to.tables[k] + task * size;
      if (load.along == Along::pair) {
        add(head, size);
        continue;
      }
      const float* index = score_->all(plan_->program.outputs[static_cast<std::size_t>(load.index)]);
      for (std::int64_t m = 0; m < score_->length(load.along); ++m) {
        head[formula_index(index[m], size)] += sums[m];
      }
    }
  }
}

}  // namespace headroom::kernels
