// The likeliest translations under an encoder-decoder, found by keeping several beginnings side by side.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/models/encoder_decoder.h"

namespace headroom::decode {

struct SearchOptions {
  config::DecodingOptions decoding;
  std::int64_t begin_id = 0, end_id = 0;  // of every target
};

struct Hypothesis {
  std::vector<std::int32_t> tokens;  // without begin and end
  double log_probability = 0.0;      // sum over the tokens and the end
  double score = 0.0;                // log_probability / (tokens + 1)^length_penalty
};

// The best hypothesis for each row of `source` [B, S] (its end token included; `valid_source` [B, S] bool or
// undefined). At each step the 2 beam likeliest continuations of a sentence's beginnings are looked at: those that end
// and are among the first `beam` are finished hypotheses, of the others the first `beam` continue. A sentence is done
// when it has `beam` finished ones; the best by score is its translation. None ends before its first token. A
// hypothesis that has as many tokens as its source and extra_length more, or as many as the context holds, ends there.
// Rows do not influence each other, apart from rounding; beam 1 takes the likeliest token each time.
std::vector<Hypothesis> beam_search(const models::EncoderDecoder& model, const at::Tensor& source,
                                    const at::Tensor& valid_source, const SearchOptions& options,
                                    const nn::Context& context);

}  // namespace headroom::decode
