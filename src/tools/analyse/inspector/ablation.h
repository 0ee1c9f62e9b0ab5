// Ablates parts of attention layers during a forward pass: heads, experts, terms of a composition, single attention
// weights. An ablated part contributes 0; the remaining weights are not renormalised.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/core/json.h"
#include "headroom/nn/observer.h"

namespace headroom::inspector {

// One ablated part. Unset fields are -1 or empty. The fields that are set define what is ablated:
//   layer, head                    a head (of routed heads: a slot)
//   layer, head, query, source     one attention weight
//   layer, head, value_expert      a value expert, for all source tokens
//   layer, head, output_expert     an output expert, for all queries
//   layer, expert                  a routed head, or a routed group of heads
//   layer, stage, term             a term, one of kAblatedTerms, of the composition "before" or "after" the softmax
struct Ablation {
  std::int64_t layer = -1, head = -1, query = -1, source = -1, value_expert = -1, output_expert = -1, expert = -1;
  std::string stage, term;
};

inline constexpr std::string_view kAblatedTerms[] = {"query, low rank", "query, gate", "key, low rank", "key, gate"};

// Parses a list of objects with these fields. Throws UserError naming the field if it is invalid for a model with these
// options and a text of `n_tokens`.
std::vector<Ablation> parse_ablations(const SortedJson& list, const config::ModelOptions& options,
                                      std::int64_t n_tokens);

// Applies ablations to forward passes of whole sequences, one sequence at a time; does not support decoding.
class AblationObserver : public nn::Observer {
 public:
  AblationObserver(const std::vector<Ablation>& off, const config::ModelOptions& options);
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;

 private:
  struct Part {
    Ablation off;
    config::AttentionOptions attention;  // of its layer
    std::string scope;                   // of its layer's values
  };
  static bool concerns(const Part& part, std::string_view what);
  at::Tensor ablate(const Part& part, std::string_view what, at::Tensor value);

  std::vector<Part> parts_;
  // Values of the current layer before ablation.
  at::Tensor query_terms_, key_terms_;
  at::Tensor scores_, probs_;  // before heads compose
  at::Tensor index_;           // of the current router
};

}  // namespace headroom::inspector
