// Formulas of scores as the CPU's kernels take them.
#include <ATen/Parallel.h>

#include "attention_cpu.h"
#include "foundation/core/transformed.h"

namespace headroom::ops {
namespace {

template <class T>
const T* pointer_to(const std::optional<T>& given) {
  return given ? &*given : nullptr;
}

}  // namespace

FormulaOperands::FormulaOperands(const AttentionArguments& in, const kernels::AttentionShape& shape, bool blocks,
                                 bool backward)
    : formula(pointer_to(parsed(in.formula).score), backward ? pointer_to(parsed(in.formula).derivative) : nullptr,
              pointer_to(parsed(in.formula).mask), in.formula.normalise) {
  const auto reads = [&](const std::vector<at::Tensor>& all) {
    return transformed(all, [&](const at::Tensor& given) {
      const at::Tensor& t = held.emplace_back(given.to(at::kFloat).contiguous());
      const auto stride = [&](std::int64_t axis) { return t.size(axis) == 1 ? 0 : t.stride(axis); };
      return t.dim() == 1 ? kernels::FormulaRead{t.const_data_ptr<float>(), 0, 1, 1}
                          : kernels::FormulaRead{t.const_data_ptr<float>(), stride(0), stride(1), t.size(2)};
    });
  };
  formula.first_key = in.formula.first_key;
  formula.first_query = in.formula.queries_last ? formula.first_key + shape.keys - shape.queries : 0;
  formula.reads = {reads(in.formula.learned), reads(in.formula.tables), reads(in.formula.tokens)};
  if (blocks && formula.mask) {
    kernels::make_blocks(shape, formula);
    constexpr std::int64_t kGrain = 4;
    at::parallel_for(0, formula.blocks->tasks(), kGrain,
                     [&](std::int64_t begin, std::int64_t end) { kernels::classify(shape, formula, begin, end); });
  }
}

FormulaGradientTensors::FormulaGradientTensors(const ScoreFormula& in, const kernels::AttentionShape& shape) {
  const auto zeros = [&](const std::vector<at::Tensor>& all, std::vector<float*>& to) {
    return transformed(all, [&](const at::Tensor& t) {
      const at::Tensor d =
          at::zeros({shape.batch, shape.heads, t.dim() == 1 ? 1 : t.size(2)}, t.options().dtype(at::kFloat));
      to.push_back(d.mutable_data_ptr<float>());
      return d;
    });
  };
  learned = zeros(in.learned, pointers.learned);
  tables = zeros(in.tables, pointers.tables);
  tokens = zeros(in.tokens, pointers.tokens);
}

void FormulaGradientTensors::set_result(const ScoreFormula& in, ScoreFormula& d) const {
  const auto summed = [](const std::vector<at::Tensor>& all, const std::vector<at::Tensor>& like) {
    std::vector<at::Tensor> sums;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const at::Tensor sum = like[k].dim() == 1 ? all[k].sum(0).squeeze(1) : all[k].sum_to_size(like[k].sizes());
      sums.push_back(sum.to(like[k].scalar_type()));
    }
    return sums;
  };
  d.learned = summed(learned, in.learned);
  d.tables = summed(tables, in.tables);
  d.tokens = summed(tokens, in.tokens);
}

std::string formula_refusal(const AttentionInputs& in) {
  if (in.r || in.mixture || in.query_bias || in.pre || in.post) {
    return "formulas of scores are supported without relative positions, mixtures of keys, biases and composed heads";
  }
  if (in.scale <= 0.0) {
    return "formulas of scores need a positive scale";
  }
  if (!in.formula.tokens.empty() && in.q.sym_size(2) > in.k.sym_size(2)) {
    return "formulas with token terms need a key for each query";
  }
  return {};
}

}  // namespace headroom::ops
