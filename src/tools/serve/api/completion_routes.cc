// POST /v1/completions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "routes.h"
#include "tools/serve/engine/scheduler.h"

namespace headroom::serve {
namespace {

std::string new_id() {
  std::random_device device;
  return fmt::format("cmpl-{:08x}{:08x}{:08x}", device(), device(), device());
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

// Returns the list of experts of each head.
Json by_head(const decode::TokenRoute& route) {
  Json heads = Json::array();
  const auto each = std::ssize(route.experts) / route.n_heads;
  for (auto from = route.experts.begin(); from != route.experts.end(); from += each) {
    heads.push_back(std::vector<std::int64_t>(from, from + each));
  }
  return heads;
}

// Builds the response of POST /v1/completions: one document, or the events of a stream.
class CompletionResponse {
 public:
  explicit CompletionResponse(const Completion& completion)
      : completion_(completion),
        request_(completion.request()),
        id_(new_id()),
        created_(std::time(nullptr)),
        answers_(static_cast<std::size_t>(completion.answers())) {
    for (std::size_t i = 0; request_.echo && i < answers_.size(); ++i) {
      set_echo(answers_[i], i / static_cast<std::size_t>(request_.n));
    }
  }

  // Without streaming: collects the deltas of all answers; document() returns the response once all are finished.
  void add(const Delta& delta) {
    Answer& answer = answers_[delta.choice];
    answer.text += delta.text;
    for (const TokenDetails& token : delta.tokens) {
      show(token, answer, answer.details);
    }
    if (!delta.finish_reason.empty()) {
      answer.finish_reason = delta.finish_reason;
    }
  }

  Json document() {
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

  // With streaming: the event for a delta, and the last event, which has the token counts.
  Json chunk(const Delta& delta) {
    Answer& answer = answers_[delta.choice];
    Details details;
    for (const TokenDetails& token : delta.tokens) {
      show(token, answer, details);
    }
    const std::string text = std::exchange(answer.begun, true) ? delta.text : answer.echo + delta.text;
    Json document = head();
    document["choices"] = Json::array({choice(delta.choice, text, std::move(details), delta.finish_reason)});
    if (request_.include_usage) {
      document["usage"] = nullptr;
    }
    return document;
  }

  Json usage_chunk() const {
    Json document = head();
    document["choices"] = Json::array();
    document["usage"] = usage();
    return document;
  }

 private:
  // The lists of the API's "logprobs" and the routing, with one entry per reported token.
  struct Details {
    Json tokens = Json::array(), token_logprobs = Json::array(), top_logprobs = Json::array(),
         text_offset = Json::array(), routing = Json::array();
  };
  struct Answer {
    std::string text, finish_reason;
    Details details;
    std::string echo;                   // the prompt, if the request sets `echo`
    std::vector<std::int64_t> offsets;  // characters of the prompt before each of its tokens
    std::int64_t echoed = 0;            // characters of the prompt already echoed
    std::size_t shown = 0;              // tokens of the prompt reported so far
    bool begun = false;
  };

  // A prompt given as text is echoed unchanged. Token offsets refer to its decoded tokens.
  void set_echo(Answer& answer, std::size_t prompt) const {
    const ServedModel& model = completion_.model();
    decode::TextStream stream(model.tokenizer(), {});
    std::string decoded;
    std::int64_t length = 0;  // of `decoded`, in characters
    for (const std::int64_t id : completion_.prompts()[prompt]) {
      const auto [text, before] = push_token(stream, static_cast<std::int32_t>(id));
      answer.offsets.push_back(length + before);
      length += characters(text);
      decoded += text;
    }
    decoded += stream.finish();
    const auto* given = std::get_if<std::string>(&request_.prompts[prompt]);
    answer.echo = given != nullptr ? *given : decoded;
    answer.echoed = characters(answer.echo);
  }

  void show(const TokenDetails& token, Answer& answer, Details& details) const {
    const decode::TokenEvent& event = token.event;
    const TokenText& spelled = completion_.model().token_text();
    if (request_.logprobs >= 0) {
      const std::int64_t begin =
          event.is_prompt ? std::min(answer.offsets[std::min(answer.shown, answer.offsets.size() - 1)], answer.echoed)
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

  Json choice(std::size_t index, const std::string& text, Details details, const std::string& reason) const {
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

  Json head() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", completion_.model().name()}};
  }

  Json usage() const {
    std::int64_t read = 0;
    for (const TokenIds& prompt : completion_.prompts()) {
      read += std::ssize(prompt);
    }
    const std::int64_t written = completion_.written();
    return {{"prompt_tokens", read}, {"completion_tokens", written}, {"total_tokens", read + written}};
  }

  const Completion& completion_;
  const CompletionRequest& request_;
  std::string id_;
  std::int64_t created_;
  std::vector<Answer> answers_;
};

std::string server_sent_event(const Json& document) {
  return "data: " + to_json_line(document) + "\n\n";
}

// Abandons the completion unless done() was called, for example if the client disconnects.
class AbandonGuard {
 public:
  AbandonGuard(std::shared_ptr<Completion> completion, Metrics& metrics)
      : completion_(std::move(completion)), metrics_(metrics) {}
  ~AbandonGuard() {
    if (!done_ && completion_->abandon()) {
      metrics_.abandoned();
    }
  }
  AbandonGuard(const AbandonGuard&) = delete;
  AbandonGuard& operator=(const AbandonGuard&) = delete;
  void done() { done_ = true; }

 private:
  std::shared_ptr<Completion> completion_;
  Metrics& metrics_;
  bool done_ = false;
};

HttpResponse whole_answer(const std::shared_ptr<Completion>& completion, Metrics& metrics) {
  AbandonGuard guard(completion, metrics);
  CompletionResponse response(*completion);
  while (const std::optional<Delta> delta = completion->next()) {
    response.add(*delta);
  }
  guard.done();
  return {.body = to_json_line(response.document())};
}

// An error after a stream has started is sent as its last event.
void stream_answer(const std::shared_ptr<Completion>& completion, Metrics& metrics,
                   const std::function<bool(std::string_view)>& write) {
  AbandonGuard guard(completion, metrics);
  CompletionResponse response(*completion);
  try {
    while (const std::optional<Delta> delta = completion->next()) {
      if (!write(server_sent_event(response.chunk(*delta)))) {
        return;
      }
    }
    guard.done();
    if (completion->request().include_usage) {
      write(server_sent_event(response.usage_chunk()));
    }
  } catch (const ApiError& error) {
    write(server_sent_event(to_json(error)));
  }
  write("data: [DONE]\n\n");
}

HttpResponse complete(HttpRequest call, const Models& models, Scheduler& scheduler, Metrics& metrics) {
  CompletionRequest request = parse_completion_request(call.body);
  call.body = {};
  call.body_memory.reset();
  const ServedModel& model = find_model(models, request.model);
  const auto completion = std::make_shared<Completion>(model, std::move(request),
                                                       [client = call.connection] { return client->client_gone(); });
  scheduler.submit(completion);
  if (!completion->request().stream) {
    return whole_answer(completion, metrics);
  }
  return {.type = "text/event-stream",
          .stream = [completion, &metrics](const auto& write) { stream_answer(completion, metrics, write); }};
}

}  // namespace

void add_completion_routes(HttpServer& server, const Models& models, Scheduler& scheduler, Metrics& metrics) {
  server.add({.method = "POST", .path = "/v1/completions", .handler = [&](HttpRequest call) {
                return complete(std::move(call), models, scheduler, metrics);
              }});
  server.add(
      {.method = "POST", .path = "/v1/chat/completions", .handler = [](const HttpRequest&) -> HttpResponse {
         refuse(
             404, "not_found", "",
             "POST /v1/chat/completions: chat is not supported, the models have no chat template; use /v1/completions");
       }});
}

}  // namespace headroom::serve
