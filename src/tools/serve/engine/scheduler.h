// Runs the engines of all models in one thread. Connections submit completions through a queue.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "completion.h"
#include "headroom/decode/engine.h"
#include "tools/serve/options.h"

namespace headroom::serve {

// A histogram of durations in seconds.
class Histogram {
 public:
  void add(double seconds);
  void write(std::string& page, std::string_view name, std::string_view help) const;

 private:
  static constexpr std::array<double, 12> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                                     0.5,   1.0,  2.5,   10.0, 60.0, 600.0};
  std::array<std::int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0.0;
};

// Thread-safe.
class Metrics {
 public:
  void answered(const std::string& route, int status);
  void first_token(double seconds);  // seconds since the request arrived
  void completed(double seconds);
  void abandoned();
  void set_counts(const std::string& model, const decode::EngineCounts& counts);
  void set_connections(std::int64_t open);

  std::string page() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::int64_t> answers_;
  Histogram first_token_, completion_;
  std::int64_t abandoned_ = 0, connections_ = 0;
  std::map<std::string, decode::EngineCounts> counts_;
};

class Scheduler {
 public:
  // `models` and `metrics` must outlive the scheduler.
  Scheduler(const std::vector<std::unique_ptr<ServedModel>>& models, const ServeOptions& options, Metrics& metrics);

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

  ServeOptions options_;
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
