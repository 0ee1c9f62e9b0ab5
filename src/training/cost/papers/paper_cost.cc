#include "training/cost/cost.h"
#include "training/cost/model_parts.h"

namespace headroom::cost {

using namespace config;

PaperCost paper_cost(const ModelOptions& model) {
  const AttentionOptions& a = model.attention;
  const Exact tokens = tokens_of(model);
  const PaperSizes sizes{.t = tokens, .s = tokens + model.memory_length, .d = model.d_model};
  const PaperTerms terms = a.projection->paper(a, sizes) + a.score->paper(a, sizes) + a.composition->paper(a, sizes) +
                           a.position->paper(a, sizes) + paper_output_gate(a, sizes);
  return {.attention_macs = terms.macs.value(), .attention_memory = terms.memory.value()};
}

}  // namespace headroom::cost
