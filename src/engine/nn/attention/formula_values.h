// The formula and the mask of the scores, and their learned values (score = "dot").
#pragma once

#include "headroom/config/attention/score_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {

// Parameters "learned_<name>": [H], or of a table [H or 1, size]; of a token's projection "learned_<name>_w" [d, H or
// 1] and "learned_<name>_b" [H or 1].
class FormulaValues {
 public:
  FormulaValues(const config::AttentionOptions& options, std::int64_t d_model, const Builder& build);
  bool given() const { return given_; }
  // The token terms of x [B, n, d] before they are summed over tokens, [B, 1, n, F], in at least float32.
  at::Tensor key_features(const at::Tensor& x, const Context& context) const;
  // Sets in.formula; `call` has the key features of all keys.
  void add_to(ops::AttentionInputs& in, const ScoreCall& call) const;

 private:
  struct Value {
    config::LearnedValue options;
    at::Tensor parameter, w;  // of tokens: bias and matrix
  };

  config::Formulas texts_;
  bool normalise_, given_;
  std::vector<Value> values_;
};

}  // namespace headroom::nn
