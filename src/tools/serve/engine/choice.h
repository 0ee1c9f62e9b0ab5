// One answer ("choice" in the API) while it is generated: turns tokens into text and ends it at a stop string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/decode/engine.h"
#include "headroom/decode/text_stream.h"

namespace headroom::serve {

// Ends a text before the first of several strings, however the text is cut into pieces.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns the text that can no longer be part of a stop string; nothing after stopped().
  std::string push(std::string_view piece);
  // Returns the text held back, when the answer ends without a stop string.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::size_t first_stop() const;
  std::size_t partial_stop() const;

  std::vector<std::string> stops_;
  std::string held_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

// A token with its log-probabilities or routing, as an answer reports it.
struct TokenDetails {
  decode::TokenEvent event;
  std::int64_t offset = 0;  // characters of the answer before it; not set for tokens of the prompt
};

// What a step adds to an answer.
struct Delta {
  std::size_t choice = 0;  // index of the answer
  std::string text;
  std::vector<TokenDetails> tokens;
  std::string finish_reason;  // "stop" or "length"; empty while the answer goes on

  bool empty() const { return text.empty() && tokens.empty() && finish_reason.empty(); }
};

struct ChoiceOptions {
  const tokenizers::Tokenizer* tokenizer = nullptr;
  std::vector<std::int32_t> before;  // the prompt's last tokens; the text of the first new ones depends on them
  std::vector<std::string> stop;
  std::int64_t end_id = -1;  // the token that ends the answer; -1 for none
  bool details = false;      // report each token
};

class Choice {
 public:
  explicit Choice(ChoiceOptions options);

  // What the token adds. Must not be called again once a delta has a finish_reason.
  Delta take(const decode::TokenEvent& event);
  // The rest, when max_tokens have been generated.
  Delta finish();
  std::int64_t written() const { return written_; }  // tokens

 private:
  Delta release(std::string text);

  ChoiceOptions options_;
  decode::TextStream stream_;
  StopStrings stop_;
  std::vector<TokenDetails> pending_;        // tokens whose text has not been released
  std::vector<std::int64_t> ends_;           // characters up to the end of each of them
  std::int64_t decoded_ = 0, released_ = 0;  // characters
  std::int64_t written_ = 0;                 // tokens
};

}  // namespace headroom::serve
