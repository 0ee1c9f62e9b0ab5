// One answer while it is written: tokens in, text and what ends it out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/decode/engine.h"
#include "headroom/decode/generate.h"
#include "stop_strings.h"

namespace headroom::serve {

// A token that an answer shows something of.
struct ShownToken {
  decode::TokenEvent event;
  std::int64_t offset = 0;  // characters of the answer's text before it; of a prompt's token unknown yet
};

// What became known of an answer.
struct Piece {
  std::size_t choice = 0;  // which answer
  std::string text;
  std::vector<ShownToken> tokens;
  std::string finish_reason;  // "stop", "length"; empty: it goes on

  bool empty() const { return text.empty() && tokens.empty() && finish_reason.empty(); }
};

struct ChoiceOptions {
  const tokenizers::Tokenizer* tokenizer = nullptr;
  std::vector<std::int32_t> before;  // the prompt's last tokens, which the spelling of the first ones depends on
  std::vector<std::string> stop;
  std::int64_t end_id = -1;  // a token that ends the answer; -1: there is none
  bool details = false;      // tokens are shown
};

class Choice {
 public:
  explicit Choice(ChoiceOptions options);

  // What the token adds. Once it says how it finished, nothing may follow.
  Piece take(const decode::TokenEvent& event);
  // What is left when as many tokens as were asked for are there.
  Piece finish();
  std::int64_t written() const { return written_; }  // tokens

 private:
  Piece released(std::string text);

  ChoiceOptions options_;
  decode::TextStream stream_;
  StopStrings stop_;
  std::vector<ShownToken> held_;    // tokens whose text is not out yet
  std::vector<std::int64_t> ends_;  // characters up to the end of each of those
  std::int64_t seen_ = 0, out_ = 0, written_ = 0;
};

}  // namespace headroom::serve
