#include "driver.h"

#include <chrono>
#include <utility>

#include "foundation/core/machine/log.h"

namespace headroom::serve {
namespace {

// How soon an idle server sees that it is to stop.
constexpr auto kLook = std::chrono::milliseconds(50);

double seconds_since(Completion::Clock::time_point then) {
  return std::chrono::duration<double>(Completion::Clock::now() - then).count();
}

}  // namespace

Driver::Driver(const std::vector<std::unique_ptr<ServedModel>>& models, const DriverOptions& options, Metrics& metrics)
    : options_(options),
      metrics_(metrics),
      capacity_(options.queue + options.max_rows * static_cast<std::int64_t>(models.size())) {
  for (const auto& model : models) {
    lanes_.push_back({.model = model.get(), .engine = nullptr, .completions = {}});
    make_engine(lanes_.back());
  }
}

void Driver::make_engine(Lane& lane) const {
  lane.engine = std::make_unique<decode::Engine>(
      lane.model->model(), decode::EngineOptions{.max_rows = options_.max_rows,
                                                 .prefix_cache_tokens = options_.prefix_cache_tokens,
                                                 .context = lane.model->context()});
  metrics_.set_counts(lane.model->name(), lane.engine->counts());
}

void Driver::submit(std::shared_ptr<Completion> completion) {
  const std::int64_t more = completion->answers();
  if (more > capacity_) {
    refuse(400, "too_many_answers", "n", "a request for {} answers: this server takes {} at once", more, capacity_);
  }
  {
    const std::lock_guard lock(mutex_);
    if (draining_) {
      refuse(503, "shutting_down", "", "the server is shutting down");
    }
    if (answers_ + more > capacity_) {
      refuse(429, "queue_full", "", "the server has {} answers to write and takes at most {}: try again later",
             answers_.load(), capacity_);
    }
    answers_ += more;
    incoming_.push_back(std::move(completion));
  }
  news_.notify_one();
}

void Driver::run(const std::function<bool()>& asked_to_stop) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      draining_ = draining_ || asked_to_stop();
      if (draining_ && answers_ == 0) {
        return;
      }
    }
    take_in();
    bool worked = false;
    for (Lane& lane : lanes_) {
      look_after(lane);
      worked |= step(lane);
    }
    if (!worked) {
      std::unique_lock lock(mutex_);
      news_.wait_for(lock, kLook, [&] { return !incoming_.empty(); });
    }
  }
}

void Driver::end() {
  const ApiError error(503, "shutting_down", "", "the server is shutting down");
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    for (const auto& completion : incoming_) {
      completion->fail(error);
    }
    incoming_.clear();
  }
  for (Lane& lane : lanes_) {
    for (const auto& completion : lane.completions) {
      completion->fail(error);
    }
  }
}

void Driver::take_in() {
  std::vector<std::shared_ptr<Completion>> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(incoming_);
  }
  for (std::shared_ptr<Completion>& completion : taken) {
    for (Lane& lane : lanes_) {
      if (lane.model != &completion->model()) {
        continue;
      }
      lane.completions.push_back(completion);
      try {
        completion->start(*lane.engine);
      } catch (const std::exception& error) {
        completion->fail(ApiError(500, "internal_error", "", error.what()));
        completion->cancel(*lane.engine);
      }
    }
  }
}

bool Driver::step(Lane& lane) {
  if (lane.completions.empty()) {
    return false;
  }
  try {
    const bool worked = lane.engine->step();
    metrics_.set_counts(lane.model->name(), lane.engine->counts());
    return worked;
  } catch (const std::exception& error) {
    // Nothing is known of what the engine holds now: all begin again.
    log_warning("serve: {}: {}", lane.model->name(), error.what());
    for (const auto& completion : lane.completions) {
      completion->fail(ApiError(500, "internal_error", "", "the model failed; the server's log says why"));
      let_go(*completion);
    }
    make_engine(lane);
    lane.completions.clear();
    return true;
  }
}

// Ends what nobody waits for and what took too long, and lets go of what has ended.
void Driver::look_after(Lane& lane) {
  for (auto it = lane.completions.begin(); it != lane.completions.end();) {
    Completion& completion = **it;
    if (!completion.ended()) {
      end_early(completion, *lane.engine);
    }
    if (!completion.ended()) {
      ++it;
      continue;
    }
    metrics_.completed(seconds_since(completion.arrived()));
    if (completion.first_token()) {
      metrics_.first_token(std::chrono::duration<double>(*completion.first_token() - completion.arrived()).count());
    }
    let_go(completion);
    metrics_.set_counts(lane.model->name(), lane.engine->counts());
    it = lane.completions.erase(it);
  }
}

void Driver::end_early(Completion& completion, decode::Engine& engine) const {
  if (completion.unwanted()) {
    if (completion.abandon()) {
      metrics_.abandoned();
    }
    completion.cancel(engine);
  } else if (seconds_since(completion.arrived()) > options_.timeout_seconds) {
    completion.fail(ApiError(
        504, "timeout", "",
        fmt::format("the answer took longer than {} s, which is this server's limit", options_.timeout_seconds)));
    completion.cancel(engine);
  }
}

void Driver::let_go(const Completion& completion) {
  answers_ -= completion.answers();
}

}  // namespace headroom::serve
