#include "scheduler.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <iterator>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"

namespace headroom::serve {
namespace {

// The interval at which an idle server checks for a stop request.
constexpr auto kIdleInterval = std::chrono::milliseconds(50);

double seconds_since(Completion::Clock::time_point then) {
  return std::chrono::duration<double>(Completion::Clock::now() - then).count();
}

}  // namespace

Scheduler::Scheduler(const std::vector<std::unique_ptr<ServedModel>>& models, const ServeOptions& options,
                     Metrics& metrics)
    : options_(options),
      metrics_(metrics),
      capacity_(options.queue + options.max_rows * static_cast<std::int64_t>(models.size())) {
  for (const auto& model : models) {
    queues_.push_back({.model = model.get(), .engine = nullptr, .completions = {}});
    make_engine(queues_.back());
  }
}

void Scheduler::make_engine(ModelQueue& queue) const {
  queue.engine = std::make_unique<decode::Engine>(
      queue.model->model(), decode::EngineOptions{.max_rows = options_.max_rows,
                                                  .prefix_cache_tokens = options_.prefix_cache_tokens,
                                                  .context = queue.model->context()});
  metrics_.set_counts(queue.model->name(), queue.engine->counts());
}

void Scheduler::submit(std::shared_ptr<Completion> completion) {
  const std::int64_t more = completion->answers();
  if (more > capacity_) {
    const char* const field = completion->request().n > 1 ? "n" : "prompt";
    refuse(400, "too_many_answers", field, "{}: {} answers requested, at most {} are supported at a time", field, more,
           capacity_);
  }
  {
    const std::lock_guard lock(mutex_);
    if (draining_) {
      throw shutting_down();
    }
    if (answers_ + more > capacity_) {
      refuse(429, "queue_full", "", "queue full: {} of {} answers are waiting or running; try again later",
             answers_.load(), capacity_);
    }
    answers_ += more;
    incoming_.push_back(std::move(completion));
  }
  changed_.notify_one();
}

void Scheduler::run(const std::function<bool()>& stop_requested) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      draining_ = draining_ || stop_requested();
      if (draining_ && answers_ == 0) {
        return;
      }
    }
    start_incoming();
    bool progress = false;
    for (ModelQueue& queue : queues_) {
      finish_completions(queue);
      progress |= step(queue);
    }
    if (!progress) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kIdleInterval, [&] { return !incoming_.empty(); });
    }
  }
}

void Scheduler::end() {
  const ApiError error = shutting_down();
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    for (const auto& completion : incoming_) {
      completion->fail(error);
    }
    incoming_.clear();
  }
  for (ModelQueue& queue : queues_) {
    for (const auto& completion : queue.completions) {
      completion->fail(error);
    }
  }
}

void Scheduler::start_incoming() {
  std::vector<std::shared_ptr<Completion>> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(incoming_);
  }
  for (std::shared_ptr<Completion>& completion : taken) {
    for (ModelQueue& queue : queues_) {
      if (queue.model != &completion->model()) {
        continue;
      }
      queue.completions.push_back(completion);
      try {
        completion->start(*queue.engine);
      } catch (const std::exception& error) {
        log_warning("serve: {}: {}", queue.model->name(), error.what());
        completion->fail(error_of_status(500));
        completion->cancel(*queue.engine);
      }
    }
  }
}

bool Scheduler::step(ModelQueue& queue) {
  if (queue.completions.empty()) {
    return false;
  }
  try {
    const bool progress = queue.engine->step();
    metrics_.set_counts(queue.model->name(), queue.engine->counts());
    return progress;
  } catch (const std::exception& error) {
    // The engine's state is unknown after an error: replace it.
    log_warning("serve: {}: {}", queue.model->name(), error.what());
    for (const auto& completion : queue.completions) {
      completion->fail(error_of_status(500));
      release(*completion);
    }
    make_engine(queue);
    queue.completions.clear();
    return true;
  }
}

// Cancels completions that are abandoned or have timed out, and removes those that have ended.
void Scheduler::finish_completions(ModelQueue& queue) {
  for (auto it = queue.completions.begin(); it != queue.completions.end();) {
    Completion& completion = **it;
    if (!completion.ended()) {
      cancel_if_needed(completion, *queue.engine);
    }
    if (!completion.ended()) {
      ++it;
      continue;
    }
    metrics_.completed(seconds_since(completion.arrived()));
    if (completion.first_token()) {
      metrics_.first_token(std::chrono::duration<double>(*completion.first_token() - completion.arrived()).count());
    }
    release(completion);
    metrics_.set_counts(queue.model->name(), queue.engine->counts());
    it = queue.completions.erase(it);
  }
}

void Scheduler::cancel_if_needed(Completion& completion, decode::Engine& engine) const {
  if (completion.abandoned()) {
    if (completion.abandon()) {
      metrics_.abandoned();
    }
    completion.cancel(engine);
  } else if (const std::optional<ApiError> late = overdue(completion.arrived())) {
    completion.fail(*late);
    completion.cancel(engine);
  }
}

std::optional<ApiError> Scheduler::overdue(Completion::Clock::time_point arrived) const {
  if (seconds_since(arrived) <= options_.timeout_seconds) {
    return std::nullopt;
  }
  return ApiError(504, "timeout", "",
                  fmt::format("the answer took longer than this server's limit of {} s", options_.timeout_seconds));
}

void Scheduler::release(const Completion& completion) {
  answers_ -= completion.answers();
}

namespace {

void head(std::string& page, std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(page), "# HELP headroom_{0} {2}\n# TYPE headroom_{0} {1}\n", name, type, help);
}

// Escapes the value of a label.
std::string label(std::string_view text) {
  std::string spelled;
  for (const char c : text) {
    spelled += c == '\n' ? "\\n" : c == '\\' || c == '"' ? std::string{'\\', c} : std::string(1, c);
  }
  return spelled;
}

// A metric that is reported per model.
struct ModelMetric {
  const char* name;
  const char* type;
  const char* help;
  std::int64_t decode::EngineCounts::*value;
};

constexpr ModelMetric kModelMetrics[] = {
    {"requests_waiting", "gauge", "Sequences waiting for a place in the batch.", &decode::EngineCounts::waiting},
    {"requests_running", "gauge", "Sequences in the batch.", &decode::EngineCounts::running},
    {"steps_total", "counter", "Forward passes.", &decode::EngineCounts::steps},
    {"sequences_finished_total", "counter", "Sequences finished.", &decode::EngineCounts::finished},
    {"prompt_tokens_total", "counter", "Prompt tokens.", &decode::EngineCounts::prompt_tokens},
    {"generated_tokens_total", "counter", "Generated tokens.", &decode::EngineCounts::generated_tokens},
    {"prefix_cache_tokens_total", "counter", "Prompt tokens found in the prefix cache.",
     &decode::EngineCounts::prefix_tokens},
    {"prefix_cache_requests_total", "counter", "Sequences with a prefix in the prefix cache.",
     &decode::EngineCounts::prefix_requests},
    {"cache_numbers", "gauge", "Values allocated in the KV caches of running sequences.",
     &decode::EngineCounts::cache_elements},
    {"prefix_cache_held_tokens", "gauge", "Tokens in the prefix cache.", &decode::EngineCounts::prefix_held},
};

}  // namespace

void Histogram::add(double seconds) {
  std::size_t bucket = 0;
  while (bucket < kBounds.size() && seconds > kBounds[bucket]) {
    ++bucket;
  }
  ++counts_[bucket];
  sum_ += seconds;
}

void Histogram::write(std::string& page, std::string_view name, std::string_view help) const {
  head(page, name, "histogram", help);
  const auto out = std::back_inserter(page);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    fmt::format_to(out, "headroom_{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
  }
  fmt::format_to(out, "headroom_{0}_sum {1}\nheadroom_{0}_count {2}\n", name, sum_, total);
}

void Metrics::answered(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{route, status}];
}

void Metrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void Metrics::completed(double seconds) {
  const std::lock_guard lock(mutex_);
  completion_.add(seconds);
}

void Metrics::abandoned() {
  const std::lock_guard lock(mutex_);
  ++abandoned_;
}

void Metrics::set_counts(const std::string& model, const decode::EngineCounts& counts) {
  const std::lock_guard lock(mutex_);
  counts_[model] = counts;
}

void Metrics::set_connections(std::int64_t open) {
  const std::lock_guard lock(mutex_);
  connections_ = open;
}

std::string Metrics::page() const {
  const std::lock_guard lock(mutex_);
  std::string page;
  const auto out = std::back_inserter(page);
  head(page, "http_requests_total", "counter", "HTTP answers by route and status.");
  for (const auto& [of, count] : answers_) {
    fmt::format_to(out, "headroom_http_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", label(of.first), of.second,
                   count);
  }
  for (const ModelMetric& metric : kModelMetrics) {
    head(page, metric.name, metric.type, metric.help);
    for (const auto& [model, counts] : counts_) {
      fmt::format_to(out, "headroom_{}{{model=\"{}\"}} {}\n", metric.name, label(model), counts.*metric.value);
    }
  }
  first_token_.write(page, "time_to_first_token_seconds", "From the arrival of a request to its first token.");
  completion_.write(page, "completion_seconds", "From the arrival of a request to the end of its last answer.");
  head(page, "requests_abandoned_total", "counter", "Completions abandoned by their client.");
  fmt::format_to(out, "headroom_requests_abandoned_total {}\n", abandoned_);
  head(page, "connections_open", "gauge", "Open connections.");
  fmt::format_to(out, "headroom_connections_open {}\n", connections_);
  head(page, "resident_memory_bytes", "gauge", "Resident memory of the process.");
  fmt::format_to(out, "headroom_resident_memory_bytes {}\n", resident_memory_bytes());
  return page;
}

}  // namespace headroom::serve
