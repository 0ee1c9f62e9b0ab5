// Runs the engines of all models in one thread. Connections submit completions through a queue.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "completion.h"
#include "headroom/decode/engine.h"
#include "metrics.h"

namespace headroom::serve {

struct SchedulerOptions {
  std::int64_t max_rows = 8;  // decode::EngineOptions::max_rows of each model
  std::int64_t prefix_cache_tokens = 0;
  std::int64_t queue = 256;      // answers that may wait for a free row
  double timeout_seconds = 600;  // from the arrival of a request to the end of its answer
};

class Scheduler {
 public:
  // `models` and `metrics` must outlive the scheduler.
  Scheduler(const std::vector<std::unique_ptr<ServedModel>>& models, const SchedulerOptions& options, Metrics& metrics);

  // Thread-safe. Throws ApiError if the queue is full or the server is shutting down.
  void submit(std::shared_ptr<Completion> completion);
  // Steps the engines until stop_requested() returns true and every submitted completion has ended. Called once.
  void run(const std::function<bool()>& stop_requested);
  // Called after run(), by its thread: fails the remaining completions; submit() throws from then on.
  void end();
  bool draining() const { return draining_; }
  // Returns an error for a request that arrived longer ago than the limit, otherwise nullopt.
  std::optional<ApiError> overdue(Completion::Clock::time_point arrived) const;

 private:
  struct ModelQueue {
    const ServedModel* model = nullptr;
    std::unique_ptr<decode::Engine> engine;
    std::list<std::shared_ptr<Completion>> completions;
  };

  void make_engine(ModelQueue& queue) const;
  void start_incoming();
  bool step(ModelQueue& queue);
  void finish_completions(ModelQueue& queue);
  void cancel_if_needed(Completion& completion, decode::Engine& engine) const;
  void release(const Completion& completion);

  SchedulerOptions options_;
  Metrics& metrics_;
  std::vector<ModelQueue> queues_;
  std::int64_t capacity_;                 // answers that may run or wait
  std::atomic<std::int64_t> answers_{0};  // submitted but not finished
  std::atomic<bool> draining_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Completion>> incoming_;
};

}  // namespace headroom::serve
