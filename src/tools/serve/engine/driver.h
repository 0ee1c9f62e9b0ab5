// The one thread that steps the engines: connections hand it their completions through a queue.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "completion.h"
#include "headroom/decode/engine.h"
#include "metrics.h"

namespace headroom::serve {

struct DriverOptions {
  std::int64_t max_rows = 8;  // of each model, as decode::EngineOptions has it
  std::int64_t prefix_cache_tokens = 0;
  std::int64_t queue = 256;      // answers that may wait for a place
  double timeout_seconds = 600;  // of a completion, from its coming to its end
};

class Driver {
 public:
  // `models` must outlive it.
  Driver(const std::vector<std::unique_ptr<ServedModel>>& models, const DriverOptions& options, Metrics& metrics);

  // From any thread. Throws ApiError when too many wait, or none is taken any more.
  void submit(std::shared_ptr<Completion> completion);
  // Steps the engines until `asked_to_stop` says so and what was taken is done. Called once.
  void run(const std::function<bool()>& asked_to_stop);
  // From the thread of run(), after it: whatever is left fails, and nothing is taken any more.
  void end();
  bool draining() const { return draining_; }
  // Answers that were taken and are not finished.
  std::int64_t answers() const { return answers_; }
  std::int64_t capacity() const { return capacity_; }

 private:
  // A model, its engine, and the completions that it works on.
  struct Lane {
    const ServedModel* model = nullptr;
    std::unique_ptr<decode::Engine> engine;
    std::list<std::shared_ptr<Completion>> completions;
  };

  void make_engine(Lane& lane) const;
  void take_in();
  bool step(Lane& lane);
  void look_after(Lane& lane);
  void end_early(Completion& completion, decode::Engine& engine) const;
  void let_go(const Completion& completion);

  DriverOptions options_;
  Metrics& metrics_;
  std::vector<Lane> lanes_;
  std::int64_t capacity_;
  std::atomic<std::int64_t> answers_{0};
  std::atomic<bool> draining_{false};

  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<std::shared_ptr<Completion>> incoming_;
};

}  // namespace headroom::serve
