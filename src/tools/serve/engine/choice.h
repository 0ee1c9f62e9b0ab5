// One answer ("choice" in the API) during generation: converts tokens to text and ends it at a stop string.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/decode/engine.h"
#include "headroom/decode/generate.h"

namespace headroom::serve {

// Ends a text before the first of several stop strings, even if they span pieces.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns the text that can no longer be part of a stop string; empty after stopped().
  std::string push(std::string_view piece);
  // Returns the text still held back. Called when the answer ends without a stop string.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::size_t first_stop() const;
  std::size_t partial_stop() const;

  std::vector<std::string> stops_;
  std::string held_;  // may be the start of a stop string
  bool stopped_ = false;
};

// A token of an answer, with its log-probabilities or routing.
struct TokenDetails {
  decode::TokenEvent event;
  std::int64_t offset = 0;  // position in the answer, in characters; not set for tokens of the prompt
};

// The text and tokens that a step adds to an answer.
struct Delta {
  std::size_t choice = 0;  // index of the answer
  std::string text;
  std::vector<TokenDetails> tokens;
  std::string finish_reason;  // "stop" or "length"; empty while the answer continues

  bool empty() const { return text.empty() && tokens.empty() && finish_reason.empty(); }
};

struct ChoiceOptions {
  const tokenizers::Tokenizer* tokenizer = nullptr;
  std::vector<std::int32_t> before;  // the prompt's last tokens, which affect the text of the first new ones
  std::vector<std::string> stop;
  std::set<std::int32_t> ends;  // the tokens that end the answer
  bool details = false;         // report details of each token
};

class Choice {
 public:
  explicit Choice(ChoiceOptions options);

  // Returns what the token adds. Must not be called after a delta with a finish_reason.
  Delta take(const decode::TokenEvent& event);
  // Returns the remaining text once max_tokens have been generated.
  Delta finish();
  std::int64_t written() const { return written_; }  // tokens

 private:
  Delta release(std::string text);

  ChoiceOptions options_;
  decode::TextStream stream_;
  StopStrings stop_;
  std::vector<TokenDetails> pending_;        // tokens whose text has not been released
  std::vector<std::int64_t> ends_;           // where each of them ends, in characters
  std::int64_t decoded_ = 0, released_ = 0;  // characters
  std::int64_t written_ = 0;                 // tokens
};

}  // namespace headroom::serve
