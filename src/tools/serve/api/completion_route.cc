// POST /v1/completions.
#include <utility>

#include "completion_response.h"
#include "routes.h"

namespace headroom::serve {
namespace {

// Ends the completion where its client, or what waits for it, is gone.
class Waiting {
 public:
  Waiting(std::shared_ptr<Completion> completion, Metrics& metrics)
      : completion_(std::move(completion)), metrics_(metrics) {}
  ~Waiting() {
    if (!done_ && completion_->abandon()) {
      metrics_.abandoned();
    }
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  void done() { done_ = true; }

 private:
  std::shared_ptr<Completion> completion_;
  Metrics& metrics_;
  bool done_ = false;
};

Reply whole_answer(const std::shared_ptr<Completion>& completion, Metrics& metrics) {
  Waiting waiting(completion, metrics);
  CompletionResponse response(*completion);
  while (std::optional<Piece> piece = completion->next()) {
    response.add(std::move(*piece));
  }
  waiting.done();
  return {.body = to_json_line(response.document())};
}

// What goes wrong once a stream has begun is its last event.
void stream_answer(const std::shared_ptr<Completion>& completion, Metrics& metrics,
                   const std::function<bool(std::string_view)>& write) {
  Waiting waiting(completion, metrics);
  CompletionResponse response(*completion);
  try {
    while (std::optional<Piece> piece = completion->next()) {
      if (!write(server_sent_event(response.chunk(std::move(*piece))))) {
        return;
      }
    }
    waiting.done();
    if (completion->request().include_usage) {
      write(server_sent_event(response.usage_chunk()));
    }
  } catch (const ApiError& error) {
    write(server_sent_event(to_json(error)));
  }
  write(kLastEvent);
}

}  // namespace

void add_completion_route(HttpServer& server, const Models& models, Driver& driver, Metrics& metrics) {
  server.add({.method = "POST", .path = "/v1/completions", .handler = [&](Call call) -> Reply {
                CompletionRequest request = parse_completion_request(call.body);
                call.body = {};
                call.held.reset();
                const ServedModel& model = find_model(models, request.model);
                const auto completion = std::make_shared<Completion>(
                    model, std::move(request), [client = call.connection] { return client->gone(); });
                driver.submit(completion);
                if (!completion->request().stream) {
                  return whole_answer(completion, metrics);
                }
                return {.type = "text/event-stream", .stream = [completion, &metrics](const auto& write) {
                          stream_answer(completion, metrics, write);
                        }};
              }});
}

}  // namespace headroom::serve
