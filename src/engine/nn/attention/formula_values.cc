#include "formula_values.h"

#include "engine/nn/linear.h"

namespace headroom::nn {
namespace {

at::Tensor apply(config::TokenFunction function, const at::Tensor& x) {
  switch (function) {
    case config::TokenFunction::linear:
      return x;
    case config::TokenFunction::sigmoid:
      return x.sigmoid();
    case config::TokenFunction::log_sigmoid:
      return at::log_sigmoid(x);
    case config::TokenFunction::softplus:
      return at::log_sigmoid(x.neg()).neg();
    case config::TokenFunction::tanh:
      return x.tanh();
  }
  return x;
}

}  // namespace

FormulaValues::FormulaValues(const config::AttentionOptions& options, std::int64_t d_model, const Builder& build)
    : texts_(config::formulas_of(options.of<config::DotOptions>(), options.computed_heads(), options.d_head)),
      normalise_(options.of<config::DotOptions>().normalise == config::Normalise::softmax),
      given_(!texts_.score.empty() || !texts_.mask.empty() || !normalise_) {
  for (const config::LearnedValue& value : texts_.learned) {
    const std::string name = "learned_" + value.name;
    const std::int64_t heads = value.by_head() ? options.computed_heads() : 1;
    if (value.of_tokens()) {
      values_.push_back({value, build.constant(name + "_b", {heads}, value.start),
                         build.for_matmul().matrix(name + "_w", {d_model, heads}, Distribution::normal(0.02),
                                                   {.in = d_model, .out = heads})});
    } else if (value.is_table()) {
      values_.push_back({value, build.constant(name, {heads, value.size}, value.start), {}});
    } else {
      values_.push_back({value, build.constant(name, {heads}, value.start), {}});
    }
  }
}

at::Tensor FormulaValues::key_features(const at::Tensor& x, const Context& context) const {
  std::vector<at::Tensor> all;
  for (const Value& value : values_) {
    if (value.options.of_tokens()) {
      const at::Tensor projected = linear(x, value.w, value.parameter, context);
      all.push_back(by_rows(projected, context, [&](const auto& part) {
        const at::Tensor rows = part(projected);
        return apply(value.options.from, rows.scalar_type() == at::kDouble ? rows : rows.to(at::kFloat));
      }));
    }
  }
  return all.empty() ? at::Tensor() : at::cat(all, 2).unsqueeze(1);
}

void FormulaValues::add_to(ops::AttentionInputs& in, const ScoreCall& call) const {
  in.formula = {.score = texts_.score, .mask = texts_.mask, .normalise = normalise_, .first_key = call.first_index};
  std::int64_t feature = 0;
  for (const Value& value : values_) {
    if (value.options.of_tokens()) {
      const std::int64_t heads = value.parameter.size(0);
      at::Tensor terms = call.features.squeeze(1).narrow(2, feature, heads).transpose(1, 2);
      feature += heads;
      if (value.options.cumulative) {
        if (in.mask.valid_keys) {  // padding adds nothing
          terms = terms.masked_fill(in.mask.valid_keys->logical_not().unsqueeze(1), 0.0);
        }
        terms = terms.cumsum(2);
      }
      in.formula.tokens.push_back(terms);
    } else if (value.options.is_table()) {
      in.formula.tables.push_back(value.parameter.unsqueeze(0));
    } else {
      in.formula.learned.push_back(value.parameter);
    }
  }
}

}  // namespace headroom::nn
