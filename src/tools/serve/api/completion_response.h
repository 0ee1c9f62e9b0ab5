// What POST /v1/completions answers with: one document, or the events of a stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"
#include "tools/serve/engine/choice.h"
#include "tools/serve/engine/completion.h"

namespace headroom::serve {

// Adds up pieces to answers, each with the prompt in front where the request wants an echo.
class CompletionResponse {
 public:
  explicit CompletionResponse(const Completion& completion);

  void add(Piece piece);
  // All of it, once, when every answer is finished.
  Json document();
  // A piece of a stream; `add` is not called then.
  Json chunk(Piece piece);
  // A stream's last document: the numbers of tokens.
  Json usage_chunk() const;

 private:
  // The lists of the API's "logprobs", and the experts, an entry for each shown token.
  struct Details {
    Json tokens = Json::array(), token_logprobs = Json::array(), top_logprobs = Json::array(),
         text_offset = Json::array(), routing = Json::array();
  };
  struct Answer {
    std::string text, finish_reason;
    Details details;
    std::string echo;                // the prompt's text
    std::vector<std::int64_t> ends;  // characters of the prompt's text in front of each of its tokens
    std::int64_t echoed = 0;         // characters of the prompt's text
    std::size_t shown = 0;           // tokens of the prompt
    bool begun = false;
  };

  void set_echo(Answer& answer, std::size_t prompt) const;
  void show(const ShownToken& token, Answer& answer, Details& details) const;
  Json choice(std::size_t index, const std::string& text, Details details, const std::string& reason) const;
  Json head() const;
  Json usage() const;

  const Completion& completion_;
  const CompletionRequest& request_;
  std::string id_;
  std::int64_t created_;
  std::vector<Answer> answers_;
};

// An event of a stream: "data: ...", and the one that ends it.
std::string server_sent_event(const Json& document);
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

}  // namespace headroom::serve
