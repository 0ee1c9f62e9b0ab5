#include "completion_response.h"

#include <cmath>
#include <ctime>
#include <random>
#include <utility>

#include "foundation/core/text/utf8.h"

namespace headroom::serve {
namespace {

std::string new_id() {
  std::random_device device;
  return fmt::format("cmpl-{:08x}{:08x}{:08x}", device(), device(), device());
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

// A list of experts for each head.
Json by_head(const decode::TokenRoute& route) {
  Json heads = Json::array();
  const auto each = std::ssize(route.experts) / route.n_heads;
  for (auto from = route.experts.begin(); from != route.experts.end(); from += each) {
    heads.push_back(std::vector<std::int64_t>(from, from + each));
  }
  return heads;
}

}  // namespace

CompletionResponse::CompletionResponse(const Completion& completion)
    : completion_(completion),
      request_(completion.request()),
      id_(new_id()),
      created_(std::time(nullptr)),
      answers_(static_cast<std::size_t>(completion.answers())) {
  for (std::size_t i = 0; request_.echo && i < answers_.size(); ++i) {
    set_echo(answers_[i], i / static_cast<std::size_t>(request_.n));
  }
}

// A prompt that came as text is echoed as it came; where its tokens' texts begin is counted in what they decode to.
void CompletionResponse::set_echo(Answer& answer, std::size_t prompt) const {
  const ServedModel& model = completion_.model();
  decode::TextStream stream(model.tokenizer(), {});
  std::string decoded;
  std::int64_t before = 0;
  for (const std::int64_t id : completion_.prompts()[prompt]) {
    answer.ends.push_back(before);
    const std::string text = stream.push(static_cast<std::int32_t>(id));
    before += static_cast<std::int64_t>(count_characters(text));
    decoded += text;
  }
  decoded += stream.finish();
  const auto* given = std::get_if<std::string>(&request_.prompts[prompt]);
  answer.echo = given != nullptr ? *given : decoded;
  answer.echoed = static_cast<std::int64_t>(count_characters(answer.echo));
}

void CompletionResponse::show(const ShownToken& token, Answer& answer, Details& details) const {
  const decode::TokenEvent& event = token.event;
  const TokenText& spelled = completion_.model().token_text();
  if (request_.logprobs >= 0) {
    const std::int64_t begin =
        event.is_prompt ? std::min(answer.ends[std::min(answer.shown, answer.ends.size() - 1)], answer.echoed)
                        : answer.echoed + token.offset;
    details.tokens.push_back(spelled.of(event.id));
    details.token_logprobs.push_back(number(event.logprob));
    details.text_offset.push_back(begin);
    if (!std::isfinite(event.logprob)) {
      details.top_logprobs.push_back(nullptr);
    } else {
      Json top = Json::object();
      for (const decode::Alternative& alternative : event.top) {
        top[spelled.of(alternative.id)] = number(alternative.logprob);
      }
      top[spelled.of(event.id)] = number(event.logprob);
      details.top_logprobs.push_back(std::move(top));
    }
  }
  if (request_.routing) {
    Json routes = Json::object();
    for (const decode::TokenRoute& route : event.routes) {
      routes[route.name] = by_head(route);
    }
    details.routing.push_back(std::move(routes));
  }
  answer.shown += event.is_prompt ? 1 : 0;
}

void CompletionResponse::add(Piece piece) {
  Answer& answer = answers_[piece.choice];
  answer.text += piece.text;
  for (const ShownToken& token : piece.tokens) {
    show(token, answer, answer.details);
  }
  if (!piece.finish_reason.empty()) {
    answer.finish_reason = piece.finish_reason;
  }
}

Json CompletionResponse::choice(std::size_t index, const std::string& text, Details details,
                                const std::string& reason) const {
  Json choice = {{"text", text}, {"index", index}, {"logprobs", nullptr}};
  if (request_.logprobs >= 0) {
    choice["logprobs"] = {{"tokens", std::move(details.tokens)},
                          {"token_logprobs", std::move(details.token_logprobs)},
                          {"top_logprobs", std::move(details.top_logprobs)},
                          {"text_offset", std::move(details.text_offset)}};
  }
  if (request_.routing) {
    choice["routing"] = std::move(details.routing);
  }
  choice["finish_reason"] = reason.empty() ? Json() : Json(reason);
  return choice;
}

Json CompletionResponse::head() const {
  return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", completion_.model().name()}};
}

Json CompletionResponse::usage() const {
  std::int64_t read = 0;
  for (const TokenIds& prompt : completion_.prompts()) {
    read += std::ssize(prompt);
  }
  const std::int64_t written = completion_.written();
  return {{"prompt_tokens", read}, {"completion_tokens", written}, {"total_tokens", read + written}};
}

Json CompletionResponse::document() {
  Json document = head();
  document["choices"] = Json::array();
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    Answer& answer = answers_[i];
    document["choices"].push_back(
        choice(i, answer.echo + answer.text, std::move(answer.details), answer.finish_reason));
  }
  document["usage"] = usage();
  return document;
}

Json CompletionResponse::chunk(Piece piece) {
  Answer& answer = answers_[piece.choice];
  Details details;
  for (const ShownToken& token : piece.tokens) {
    show(token, answer, details);
  }
  const std::string text = std::exchange(answer.begun, true) ? piece.text : answer.echo + piece.text;
  Json document = head();
  document["choices"] = Json::array({choice(piece.choice, text, std::move(details), piece.finish_reason)});
  if (request_.include_usage) {
    document["usage"] = nullptr;
  }
  return document;
}

Json CompletionResponse::usage_chunk() const {
  Json document = head();
  document["choices"] = Json::array();
  document["usage"] = usage();
  return document;
}

std::string server_sent_event(const Json& document) {
  return "data: " + to_json_line(document) + "\n\n";
}

}  // namespace headroom::serve
