#include "headroom/decode/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <span>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "prefix_cache.h"
#include "row.h"

namespace headroom::decode {
namespace {

using Clock = std::chrono::steady_clock;

std::span<const float> values_of(const at::Tensor& row) {
  return {row.const_data_ptr<float>(), static_cast<std::size_t>(row.numel())};
}

at::Tensor to_float(const at::Tensor& logits) {
  return logits.to(at::kFloat).cpu().contiguous();
}

SampleOptions sampling_of(const Request& r) {
  return {.temperature = r.temperature, .top_k = r.top_k, .top_p = r.top_p};
}

void check_request(const Request& r, std::int64_t vocabulary) {
  if (r.prompt.empty()) {
    user_error("request: prompt: must have at least one token");
  }
  for (const std::int64_t id : r.prompt) {
    if (id < 0 || id >= vocabulary) {
      user_error("request: prompt: token ids must be at least 0 and below {}, got {}", vocabulary, id);
    }
  }
  if (r.max_tokens < 0) {
    user_error("request: max_tokens must be at least 0, got {}", r.max_tokens);
  }
  check_sampling(sampling_of(r), "request");
  if (r.logprobs < -1) {
    user_error("request: logprobs must be at least 0 (-1: none), got {}", r.logprobs);
  }
}

// Draws each row's next token. Rows with non-finite logits fail.
void draw_next(std::span<Row* const> rows) {
  at::parallel_for(0, std::ssize(rows), 1, [&](std::int64_t begin, std::int64_t end) {
    for (Row* row : rows.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))) {
      try {
        row->last = sample(values_of(row->logits), sampling_of(row->request), row->random);
      } catch (const Error& error) {
        row->end(Finish::failed, error.what());
      }
    }
  });
}

}  // namespace

struct Engine::Parts {
  Parts(const models::LanguageModel& m, EngineOptions o)
      : model(m),
        options(std::move(o)),
        fresh(model.start_decoding()),
        chunks{options.prompt_chunk},
        prefixes(options.prefix_cache_tokens, chunks) {
    options.context.training = false;
  }

  const models::LanguageModel& model;
  EngineOptions options;
  EngineCounts counts;
  Handle last_handle = 0;
  bool stepping = false;
  std::deque<std::unique_ptr<Row>> waiting;
  std::vector<std::unique_ptr<Row>> running;
  models::DecodeState fresh;  // state of an empty sequence; holds the offset tables shared by all sequences
  PromptChunks chunks;
  PrefixCache prefixes;

  void admit();
  double continue_rows();
  void read_prompts(double seconds);
  void begin(Row& row);
  std::span<const std::int64_t> next_chunk(const Row& row) const;
  bool may_find(const Row& row, std::span<Row* const> before) const;
  std::vector<Row*> rows_to_read(std::size_t first);
  void read_chunks(std::span<Row* const> rows);
  at::Tensor read_tokens(std::span<Row* const> rows, std::span<const models::DecodeRow> parts);
  void add_chunk(Row& row, std::int64_t n, const at::Tensor& logits);
  void emit_prompt(Row& row) const;
  void finish_prompt(Row& row);
  void add_tokens(std::span<Row* const> rows);
  void add_token(Row& row);
  void sweep();
};

void Engine::Parts::admit() {
  while (std::ssize(running) < options.max_rows && !waiting.empty()) {
    running.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
}

// Decodes one token per request whose prompt has been read. Returns the elapsed time in seconds.
double Engine::Parts::continue_rows() {
  const Clock::time_point start = Clock::now();
  std::vector<Row*> continued;
  std::vector<Row*> unread;
  for (const std::unique_ptr<Row>& row : running) {
    if (!row->reads_prompt() && !row->ending) {
      continued.push_back(row.get());
      if (!row->logits.defined()) {
        unread.push_back(row.get());
      }
    }
  }
  if (!unread.empty()) {
    std::vector<models::DecodeRow> rows;
    for (Row* row : unread) {
      rows.push_back({&row->state, {&row->last, 1}});
    }
    const at::Tensor logits = to_float(model.decode(rows, options.context));
    for (std::size_t i = 0; i < unread.size(); ++i) {
      unread[i]->logits = logits[static_cast<std::int64_t>(i)];
    }
  }
  add_tokens(continued);
  return continued.empty() ? 0.0 : std::chrono::duration<double>(Clock::now() - start).count();
}

void Engine::Parts::read_prompts(double seconds) {
  const Clock::time_point start = Clock::now();
  for (std::size_t i = 0; i < running.size(); ++i) {
    const Row& row = *running[i];
    while (row.reads_prompt() && !row.ending) {
      read_chunks(rows_to_read(i));
      if (std::chrono::duration<double>(Clock::now() - start).count() >= options.prompt_share * seconds) {
        return;
      }
    }
  }
}

void Engine::Parts::begin(Row& row) {
  row.begun = true;
  row.state = fresh;
  if (options.prefix_cache_tokens > 0 && !row.routes_prompt()) {
    CachedPrefix cached = prefixes.find(row.request.prompt, row.scores_prompt() ? row.request.logprobs : -1);
    if (cached.tokens > 0) {
      row.state = std::move(cached.state);
      row.read = cached.tokens;
      row.scores = std::move(cached.scores);
      ++counts.prefix_requests;
      counts.prefix_tokens += cached.tokens;
      counts.prompt_tokens += cached.tokens;
    }
  }
}

std::span<const std::int64_t> Engine::Parts::next_chunk(const Row& row) const {
  const std::span<const std::int64_t> prompt(row.request.prompt);
  const std::int64_t n = std::min(chunks.end_after(row.read), std::ssize(prompt)) - row.read;
  return prompt.subspan(static_cast<std::size_t>(row.read), static_cast<std::size_t>(n));
}

// Whether a row in `before` has the same first chunk as a new row, so that the prefix cache may soon hold the chunk.
bool Engine::Parts::may_find(const Row& row, std::span<Row* const> before) const {
  return options.prefix_cache_tokens > 0 && !row.begun && std::ranges::any_of(before, [&](const Row* one) {
           return std::ranges::equal(next_chunk(row), next_chunk(*one));
         });
}

// Returns running row `first` and later rows whose next chunks have equal length, in total at most a whole chunk.
std::vector<Row*> Engine::Parts::rows_to_read(std::size_t first) {
  std::vector<Row*> rows = {running[first].get()};
  if (!rows[0]->begun) {
    begin(*rows[0]);
  }
  const auto n = std::ssize(next_chunk(*rows[0]));
  const auto reads_alone = [](const Row& row) { return row.scores_prompt() || row.routes_prompt(); };
  for (std::size_t i = first + 1; i < running.size() && !reads_alone(*rows[0]); ++i) {
    Row& row = *running[i];
    if ((std::ssize(rows) + 1) * n > options.prompt_chunk) {
      break;
    }
    if (!row.reads_prompt() || row.ending || reads_alone(row) || std::ssize(next_chunk(row)) != n ||
        may_find(row, rows)) {
      continue;
    }
    if (!row.begun) {
      begin(row);
    }
    if (std::ssize(next_chunk(row)) == n) {
      rows.push_back(&row);
    }
  }
  return rows;
}

// Reads the rows' next prompt tokens. Returns the logits after each token, [n, V], if the prompt (of a single row) is
// scored; after the last token of each row, [N, V], if a prompt ends there; otherwise an undefined tensor.
at::Tensor Engine::Parts::read_tokens(std::span<Row* const> rows, std::span<const models::DecodeRow> parts) {
  const bool adds = std::ranges::any_of(rows, [&](const Row* row) {
    return row->request.max_tokens > 0 && row->read + std::ssize(parts[0].tokens) == std::ssize(row->request.prompt);
  });
  RouteRecorder recorder;
  nn::Context context = options.context;
  context.split_invariant = true;
  if (rows[0]->routes_prompt()) {
    context.observer = &recorder;
  }
  at::Tensor logits;
  if (rows[0]->scores_prompt()) {
    logits = to_float(model.decode_each(parts[0], context));
  } else if (adds) {
    logits = to_float(model.decode(parts, context));
  } else {
    model.read(parts, context);
  }
  if (rows[0]->routes_prompt()) {
    for (std::vector<TokenRoute>& routes : recorder.of_last(std::ssize(parts[0].tokens))) {
      rows[0]->routes.push_back(std::move(routes));
    }
  }
  return logits;
}

void Engine::Parts::read_chunks(std::span<Row* const> rows) {
  const std::vector<models::DecodeRow> parts = transformed(rows, [&](Row* row) {
    return models::DecodeRow{&row->state, next_chunk(*row)};
  });
  const at::Tensor logits = read_tokens(rows, parts);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool each = rows[i]->scores_prompt() || !logits.defined();
    add_chunk(*rows[i], std::ssize(parts[i].tokens), each ? logits : logits.narrow(0, static_cast<std::int64_t>(i), 1));
  }
}

// Adds n prompt tokens, and their logits from read_tokens(), to the row's tokens.
void Engine::Parts::add_chunk(Row& row, std::int64_t n, const at::Tensor& logits) {
  const std::span<const std::int64_t> prompt(row.request.prompt);
  if (row.scores_prompt()) {
    const at::Tensor log_p = logits.log_softmax(1);
    for (std::int64_t i = 0; i < n && row.read + i + 1 < std::ssize(prompt); ++i) {
      row.scores.push_back(
          score_of(prompt[static_cast<std::size_t>(row.read + i + 1)], values_of(log_p[i]), row.request.logprobs));
    }
  }
  row.read += n;
  counts.prompt_tokens += n;
  // Rows that begin later reuse the relative offsets that this row has projected.
  for (std::size_t layer = 0; layer < fresh.caches.size(); ++layer) {
    fresh.caches[layer].offsets() = row.state.caches[layer].offsets();
  }
  if (options.prefix_cache_tokens > 0 && row.read == chunks.last_end(std::ssize(prompt) - 1)) {
    row.last_chunk = row.state;
  }
  emit_prompt(row);
  if (!row.reads_prompt()) {
    row.logits = logits.defined() ? logits[logits.size(0) - 1] : at::Tensor();
    finish_prompt(row);
  }
}

// Emits events for the prompt tokens that have been read.
void Engine::Parts::emit_prompt(Row& row) const {
  if (!row.request.echo) {
    return;
  }
  for (; row.emitted < row.read; ++row.emitted) {
    const auto place = static_cast<std::size_t>(row.emitted);
    TokenEvent event{.id = row.request.prompt[place], .is_prompt = true, .logprob = 0.0, .top = {}, .routes = {}};
    if (row.scores_prompt() && place == 0) {
      event.logprob = std::numeric_limits<double>::quiet_NaN();
    } else if (row.scores_prompt()) {
      event.logprob = row.scores[place - 1].logprob;
      event.top = row.scores[place - 1].top;
    }
    if (row.routes_prompt()) {
      event.routes = row.routes[place];
    }
    row.emit(event);
  }
}

void Engine::Parts::finish_prompt(Row& row) {
  if (row.last_chunk) {
    CachedPrompt prompt{.tokens = row.request.prompt, .state = std::move(*row.last_chunk), .read = 0, .scores = {}};
    prompt.read = chunks.last_end(std::ssize(prompt.tokens) - 1);
    if (row.scores_prompt()) {
      prompt.scores = row.scores;
      prompt.alternatives = row.request.logprobs;
    }
    prefixes.keep(std::move(prompt));
    row.last_chunk.reset();
  }
  if (row.request.max_tokens == 0) {
    row.end(Finish::length);
    return;
  }
  Row* one = &row;
  add_tokens({&one, 1});
}

void Engine::Parts::add_tokens(std::span<Row* const> rows) {
  draw_next(rows);
  for (Row* row : rows) {
    if (!row->ending) {
      add_token(*row);
    }
  }
}

// Emits the event of the drawn token.
void Engine::Parts::add_token(Row& row) {
  TokenEvent event{.id = row.last, .is_prompt = false, .logprob = 0.0, .top = {}, .routes = {}};
  if (row.request.logprobs >= 0) {
    TokenScore score = score_of(row.last, values_of(row.logits.unsqueeze(0).log_softmax(1)), row.request.logprobs);
    event.logprob = score.logprob;
    event.top = std::move(score.top);
  }
  row.logits.reset();
  if (row.request.routing) {  // reads the token now and separately, because its event includes its routing
    RouteRecorder recorder;
    nn::Context context = options.context;
    context.observer = &recorder;
    const models::DecodeRow part{&row.state, {&row.last, 1}};
    row.logits = to_float(model.decode({&part, 1}, context))[0];
    event.routes = recorder.of_last(1)[0];
  }
  ++row.added;
  ++counts.generated_tokens;
  row.emit(event);
  if (row.added == row.request.max_tokens) {
    row.end(Finish::length);
  }
}

void Engine::Parts::sweep() {
  std::vector<std::unique_ptr<Row>> ended;
  for (std::unique_ptr<Row>& row : running) {
    if (row->ending) {
      ended.push_back(std::move(row));
    }
  }
  std::erase(running, nullptr);
  counts.finished += std::ssize(ended);
  for (const std::unique_ptr<Row>& row : ended) {
    row->on_finish(*row->ending);
  }
}

Engine::Engine(const models::LanguageModel& model, EngineOptions options) {
  if (options.max_rows < 1 || options.prompt_chunk < 1 || options.prefix_cache_tokens < 0) {
    user_error(
        "engine: max_rows and prompt_chunk must be at least 1, prefix_cache_tokens at least 0, got {}, {} and {}",
        options.max_rows, options.prompt_chunk, options.prefix_cache_tokens);
  }
  parts_ = std::make_unique<Parts>(model, std::move(options));
}

Engine::~Engine() = default;

Engine::Handle Engine::add(Request request, OnToken on_token, OnFinish on_finish) {
  check_request(request, parts_->model.options().vocabulary_size);
  parts_->waiting.push_back(
      std::make_unique<Row>(++parts_->last_handle, std::move(request), std::move(on_token), std::move(on_finish)));
  return parts_->last_handle;
}

void Engine::cancel(Handle handle) {
  Parts& p = *parts_;
  const auto is_it = [&](const std::unique_ptr<Row>& row) { return row->handle == handle; };
  if (const auto waits = std::ranges::find_if(p.waiting, is_it); waits != p.waiting.end()) {
    const std::unique_ptr<Row> row = std::move(*waits);
    p.waiting.erase(waits);
    ++p.counts.finished;
    row->on_finish({Finish::cancelled, ""});
  } else if (const auto runs = std::ranges::find_if(p.running, is_it); runs != p.running.end()) {
    (*runs)->end(Finish::cancelled);
    if (!p.stepping) {
      p.sweep();
    }
  }
}

bool Engine::step() {
  const at::NoGradGuard no_grad;
  Parts& p = *parts_;
  p.admit();
  if (p.running.empty()) {
    return false;
  }
  ++p.counts.steps;
  struct Stepping {
    bool& now;
    ~Stepping() { now = false; }
  } stepping{p.stepping};
  p.stepping = true;
  p.read_prompts(p.continue_rows());
  p.sweep();
  return true;
}

EngineCounts Engine::counts() const {
  EngineCounts counts = parts_->counts;
  counts.waiting = std::ssize(parts_->waiting);
  counts.running = std::ssize(parts_->running);
  counts.prefix_held = parts_->prefixes.held();
  for (const std::unique_ptr<Row>& row : parts_->running) {
    counts.cache_elements += row->state.cache_elements();
  }
  return counts;
}

}  // namespace headroom::decode
