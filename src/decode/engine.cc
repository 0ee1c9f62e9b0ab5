#include "headroom/decode/engine.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <list>
#include <span>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/random.h"
#include "sample.h"

namespace headroom::decode {
namespace {

struct Row {
  Engine::Handle handle = 0;
  Request request;
  Engine::OnToken on_token;
  Engine::OnFinish on_finish;
  Random random;
  models::DecodeState state;
  std::int64_t read = 0;   // tokens of the prompt
  std::int64_t added = 0;  // tokens after it
  std::int64_t next = 0;   // the token to read, once the prompt is read
  bool cancelled = false;
  at::Tensor before;  // scored prompts: logits after the last token read
};

std::span<const double> numbers(const at::Tensor& row) {
  return {row.const_data_ptr<double>(), static_cast<std::size_t>(row.numel())};
}

void check_request(const Request& r, std::int64_t vocabulary) {
  if (r.prompt.empty()) {
    misuse("request: prompt: must have at least one token");
  }
  for (const std::int64_t id : r.prompt) {
    if (id < 0 || id >= vocabulary) {
      misuse("request: prompt: token ids must be at least 0 and below {}, got {}", vocabulary, id);
    }
  }
  if (r.max_tokens < 0) {
    misuse("request: max_tokens must be at least 0, got {}", r.max_tokens);
  }
  if (!std::isfinite(r.temperature) || r.temperature < 0.0) {
    misuse("request: temperature must be a number of at least 0, got {}", r.temperature);
  }
  if (r.top_k < 0) {
    misuse("request: top_k must be at least 0 (0: all), got {}", r.top_k);
  }
  if (!(r.top_p > 0.0 && r.top_p <= 1.0)) {
    misuse("request: top_p must be above 0 and at most 1, got {}", r.top_p);
  }
  if (r.logprobs < -1) {
    misuse("request: logprobs must be at least 0 (-1: none), got {}", r.logprobs);
  }
}

void describe_token(std::int64_t id, const at::Tensor& logits, std::int64_t count, TokenEvent& event) {
  const at::Tensor log_p = logits.to(at::kDouble).log_softmax(-1).contiguous();
  const std::span<const double> all = numbers(log_p);
  event.logprob = all[static_cast<std::size_t>(id)];
  std::vector<std::int64_t> ids(all.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int64_t>(i);
  }
  const auto p = [&](std::int64_t i) { return all[static_cast<std::size_t>(i)]; };
  const auto kept = std::min(std::ssize(ids), count);
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), [&](std::int64_t a, std::int64_t b) {
    if (p(a) != p(b)) {
      return p(a) > p(b);
    }
    return (a == id) != (b == id) ? a == id : a < b;
  });
  for (std::int64_t i = 0; i < kept; ++i) {
    event.top.push_back({ids[static_cast<std::size_t>(i)], p(ids[static_cast<std::size_t>(i)])});
  }
}

}  // namespace

struct Engine::Parts {
  Parts(const models::LanguageModel& m, EngineOptions o) : model(m), options(std::move(o)) {}

  const models::LanguageModel& model;
  EngineOptions options;
  EngineCounts counts;
  Handle last_handle = 0;
  std::deque<std::unique_ptr<Row>> waiting;
  std::list<std::unique_ptr<Row>> running;

  void finish(Row& row, Ending ending) {
    ++counts.finished;
    if (row.on_finish) {
      row.on_finish(ending);
    }
  }

  at::Tensor read(Row& row, std::span<const std::int64_t> tokens) const {
    const models::DecodeRow one{&row.state, tokens};
    return model.decode({&one, 1}, options.context);
  }

  // True: the request is done.
  bool prompt(Row& row) {
    const std::vector<std::int64_t>& all = row.request.prompt;
    const bool scored = row.request.echo && row.request.logprobs >= 0;
    at::Tensor logits;
    const std::int64_t end = std::min(std::ssize(all), row.read + options.prompt_chunk);
    if (!scored) {
      logits = read(
          row, std::span(all).subspan(static_cast<std::size_t>(row.read), static_cast<std::size_t>(end - row.read)));
    }
    for (; row.read < end; ++row.read) {
      const std::size_t at = static_cast<std::size_t>(row.read);
      if (row.request.echo) {
        TokenEvent event{.id = all[at], .is_prompt = true, .logprob = std::numeric_limits<double>::quiet_NaN()};
        if (scored && row.read > 0) {
          describe_token(all[at], row.before, row.request.logprobs, event);
        }
        if (!row.on_token(event)) {
          finish(row, {Finish::stopped, ""});
          return true;
        }
      }
      if (scored) {
        logits = row.before = read(row, std::span(all).subspan(at, 1))[0];
      }
      ++counts.prompt_tokens;
    }
    return row.read == std::ssize(all) && choose(row, logits.reshape({-1}));
  }
  bool choose(Row& row, const at::Tensor& logits) {
    if (row.added == row.request.max_tokens) {
      finish(row, {});
      return true;
    }
    const at::Tensor last = logits.to(at::kDouble).cpu().contiguous();
    const SampleOptions how{
        .temperature = row.request.temperature, .top_k = row.request.top_k, .top_p = row.request.top_p};
    TokenEvent event;
    try {
      event.id = sample(numbers(last), how, row.random);
    } catch (const Error& error) {
      finish(row, {Finish::failed, error.what()});
      return true;
    }
    if (row.request.logprobs >= 0) {
      describe_token(event.id, last, row.request.logprobs, event);
    }
    row.next = event.id;
    ++row.added;
    ++counts.generated_tokens;
    if (!row.on_token(event)) {
      finish(row, {Finish::stopped, ""});
      return true;
    }
    if (row.added == row.request.max_tokens) {
      finish(row, {});
      return true;
    }
    return false;
  }
};

Engine::Engine(const models::LanguageModel& model, EngineOptions options)
    : parts_(std::make_unique<Parts>(model, std::move(options))) {
  EngineOptions& o = parts_->options;
  if (o.max_rows < 1 || o.prompt_chunk < 1 || o.prefix_cache_tokens < 0) {
    misuse("engine: max_rows and prompt_chunk must be at least 1, prefix_cache_tokens at least 0, got {}, {}, {}",
           o.max_rows, o.prompt_chunk, o.prefix_cache_tokens);
  }
  o.context.training = false;
}

Engine::~Engine() = default;

Engine::Handle Engine::add(Request request, OnToken on_token, OnFinish on_finish) {
  check_request(request, parts_->model.options().vocabulary_size);
  auto row = std::make_unique<Row>(Row{.handle = ++parts_->last_handle,
                                       .request = std::move(request),
                                       .on_token = std::move(on_token),
                                       .on_finish = std::move(on_finish),
                                       .random = Random(0),
                                       .state = {}});
  row->random = Random(row->request.seed);
  parts_->waiting.push_back(std::move(row));
  return parts_->last_handle;
}

void Engine::cancel(Handle handle) {
  for (const std::unique_ptr<Row>& row : parts_->waiting) {
    row->cancelled = row->cancelled || row->handle == handle;
  }
  for (const std::unique_ptr<Row>& row : parts_->running) {
    row->cancelled = row->cancelled || row->handle == handle;
  }
}

bool Engine::step() {
  const at::NoGradGuard no_grad;
  Parts& p = *parts_;
  while (std::ssize(p.running) < p.options.max_rows && !p.waiting.empty()) {
    p.running.push_back(std::move(p.waiting.front()));
    p.waiting.pop_front();
    p.running.back()->state = p.model.start_decoding();
  }
  if (p.running.empty()) {
    return false;
  }
  ++p.counts.steps;
  for (auto it = p.running.begin(); it != p.running.end();) {
    Row& row = **it;
    bool done = row.cancelled;
    if (done) {
      p.finish(row, {Finish::cancelled, ""});
    } else if (row.read < std::ssize(row.request.prompt)) {
      done = p.prompt(row);
    } else {
      const std::int64_t token = row.next;
      done = p.choose(row, p.read(row, {&token, 1})[0]);
    }
    it = done ? p.running.erase(it) : std::next(it);
  }
  return true;
}

EngineCounts Engine::counts() const {
  EngineCounts counts = parts_->counts;
  counts.waiting = std::ssize(parts_->waiting);
  counts.running = std::ssize(parts_->running);
  return counts;
}

}  // namespace headroom::decode
