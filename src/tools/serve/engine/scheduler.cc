#include "scheduler.h"

#include <chrono>
#include <utility>

#include "foundation/core/machine/log.h"

namespace headroom::serve {
namespace {

// The interval at which an idle server checks for a stop request.
constexpr auto kIdleInterval = std::chrono::milliseconds(50);

double seconds_since(Completion::Clock::time_point then) {
  return std::chrono::duration<double>(Completion::Clock::now() - then).count();
}

}  // namespace

Scheduler::Scheduler(const std::vector<std::unique_ptr<ServedModel>>& models, const SchedulerOptions& options,
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
    refuse(400, "too_many_answers", "n", "n: {} answers requested, at most {} are supported at a time", more,
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

}  // namespace headroom::serve
