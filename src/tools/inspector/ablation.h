// Parts of attention layers switched off while a model reads: a head, an expert, a term of a composition, one edge.
//
// What is switched off gives 0; nothing else is changed, weights are not made to add up again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/core/json.h"
#include "headroom/nn/observer.h"

namespace headroom::inspect {

// One part, of the first layer on 0; -1: not meant. Which of the fields are given says what it is:
//   layer, head                            an attention matrix
//   layer, head, query, source             one weight of it
//   layer, head, value_expert              an expert of the values, in every source token
//   layer, head, output_expert             an expert of the outputs, in every query
//   layer, expert                          a head that tokens are routed to
//   layer, stage, term                     stage "before" or "after" the softmax; one of kSwitchedTerms
struct SwitchedOff {
  std::int64_t layer = -1, head = -1, query = -1, source = -1, value_expert = -1, output_expert = -1, expert = -1;
  std::string stage, term;
};

inline constexpr std::string_view kSwitchedTerms[] = {"query, low rank", "query, gate", "key, low rank", "key, gate"};

// A list of objects with such fields, for models with these options and texts of `n_tokens`. Throws UserError naming
// the field and what the model has.
std::vector<SwitchedOff> read_switched_off(const SortedJson& list, const config::ModelOptions& options,
                                           std::int64_t n_tokens);

// To be the observer of a forward pass, not of decoding; for one pass at a time.
class Switches : public nn::Observer {
 public:
  Switches(std::vector<SwitchedOff> off, const config::AttentionOptions& options);
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;

 private:
  struct Terms {
    at::Tensor query, key;  // as the layer showed them
  };
  bool concerns(const SwitchedOff& off, std::string_view what) const;
  at::Tensor without(const SwitchedOff& off, std::string_view what, at::Tensor value);

  std::vector<SwitchedOff> off_;
  const config::AttentionOptions& options_;
  Terms terms_;                // of the layer under way
  at::Tensor scores_, probs_;  // before heads compose
  at::Tensor index_;           // of the choice under way
};

}  // namespace headroom::inspect
