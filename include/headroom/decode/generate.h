// Text generation with a language model, the text of a stream of tokens, and beam search with an encoder-decoder.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/run_options.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::decode {

struct GenerateOptions {
  std::int64_t tokens = 100;  // number of tokens to add
  double temperature = 1.0;   // 0: greedy
  std::int64_t top_k = 0;     // sample from the k most likely tokens; 0: all
  double top_p = 1.0;         // sample from the smallest set of most likely tokens with this total probability
  std::uint64_t seed = 1;
  std::vector<std::int32_t> begin = {};  // tokens prepended to the prompt
  std::set<std::int32_t> ends = {};      // tokens that end the continuation, which does not include them
  nn::Context context = {};
  std::function<void(std::string_view)> on_text;  // called with whole code points as text becomes available
};

struct Generation {
  std::string text;  // the continuation, without the prompt; valid UTF-8
  std::int64_t tokens = 0;
  double tokens_per_second = 0.0;   // of the continuation, excluding the prompt
  std::int64_t cache_elements = 0;  // elements of the KV cache
};

// Throws UserError starting with `what` if the vocabulary sizes of the model and the tokenizer differ.
void require_tokenizer_of(const models::Model& model, const tokenizers::Tokenizer& tokenizer, std::string_view what);

// Throws UserError starting with `what` if the prompt is not UTF-8 or the tokenizer cannot encode it.
void check_prompt(const tokenizers::Tokenizer& tokenizer, std::string_view prompt, std::string_view what);

// Continues the prompt; an empty prompt without `begin` is replaced by a line end. Throws UserError if the two
// functions above do, and for options out of range.
Generation generate(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer, std::string_view prompt,
                    const GenerateOptions& options);

// Decodes tokens to text one at a time. Handles code points that span several tokens and tokens whose text depends on
// the previous token.
class TextStream {
 public:
  // `context`: the tokens before the stream, whose text is not returned. `tokenizer` must outlive the stream.
  TextStream(const tokenizers::Tokenizer& tokenizer, std::vector<std::int32_t> context);

  // Returns the text that this token completes: valid UTF-8, possibly empty.
  std::string push(std::int32_t id);
  // Returns the rest of the text, with incomplete code points replaced by U+FFFD.
  std::string finish();

 private:
  std::string pending() const;
  const tokenizers::Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;  // [0, released_): already returned, context for decoding the rest
  std::size_t released_;
  std::size_t returned_ = 0;  // bytes of pending() already returned
};

// Beam search for encoder-decoders.
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
