// Beam search for encoder-decoders.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/models/encoder_decoder.h"

namespace headroom::decode {

struct SearchOptions {
  config::DecodingOptions decoding;
  std::int64_t begin_id = 0, end_id = 0;  // of every target sentence
};

struct Hypothesis {
  std::vector<std::int32_t> tokens;  // without begin and end
  double log_probability = 0.0;      // sum over the tokens, including the end token once finished
  double score = 0.0;                // log_probability / (tokens + 1)^length_penalty, once finished
};

// Returns the best hypothesis for each row of `source` [B, S] (including its end token; `valid_source` is [B, S] bool
// or undefined). Each step considers the 2 * beam most likely continuations of a sentence's hypotheses. A continuation
// that ends is finished if it is among the first `beam`; the first `beam` that do not end stay live. A sentence is done
// when it has `beam` finished hypotheses; the one with the best score is its translation. Translations have between 1
// and source length + extra_length tokens, limited by the context. Rows are independent, apart from rounding; beam 1 is
// greedy search. Throws Error for options out of range.
std::vector<Hypothesis> beam_search(const models::EncoderDecoder& model, const at::Tensor& source,
                                    const at::Tensor& valid_source, const SearchOptions& options,
                                    const nn::Context& context);

}  // namespace headroom::decode
