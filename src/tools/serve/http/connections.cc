#include "connections.h"

#include <algorithm>
#include <utility>

namespace headroom::serve {
namespace {

// A client has so long to say or to take something before it loses its place to another one.
constexpr double kGraceSeconds = 1.0, kIdleGraceSeconds = 0.2;
constexpr double kIdleFirst = 1e6;
// Connections that wait for a thread; of more the oldest are closed.
constexpr std::size_t kMostWaiting = 256;

// How long the thread has waited for this client; below 0: it has not.
double waited(const Connection& connection) {
  return connection.phase() == Connection::Phase::working ? -1.0 : connection.seconds_in_phase();
}

}  // namespace

Connections::Connections(std::size_t most, Serve serve) : most_(most), serve_(std::move(serve)) {}

Connections::~Connections() {
  stop();
}

void Connections::add(std::shared_ptr<Connection> connection) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
    waiting_.push_back(std::move(connection));
    if (waiting_.size() > kMostWaiting) {
      waiting_.pop_front();
    }
    if (idle_threads_ < waiting_.size() && threads_.size() < most_) {
      threads_.emplace_back([this] { work(); });
    }
  }
  news_.notify_one();
}

void Connections::make_room() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty() || threads_.size() < most_) {
    return;
  }
  // As many as wait, those first that nothing is lost with: between two requests, then whoever has waited the longest.
  std::vector<std::pair<double, Connection*>> slow;
  for (const auto& connection : served_) {
    const bool idle = connection->phase() == Connection::Phase::idle;
    const double seconds = waited(*connection);
    if (seconds > (idle ? kIdleGraceSeconds : kGraceSeconds)) {
      slow.emplace_back(idle ? seconds + kIdleFirst : seconds, connection.get());
    }
  }
  std::sort(slow.begin(), slow.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; i < std::min(slow.size(), waiting_.size()); ++i) {
    slow[i].second->interrupt();
  }
}

bool Connections::crowded() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

std::int64_t Connections::open() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(served_) + std::ssize(waiting_);
}

void Connections::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_threads_;
    news_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    --idle_threads_;
    if (stopping_) {
      return;
    }
    const std::shared_ptr<Connection> connection = std::move(waiting_.front());
    waiting_.pop_front();
    served_.push_back(connection);
    lock.unlock();
    serve_(connection);
    connection->close();
    lock.lock();
    served_.erase(std::find(served_.begin(), served_.end(), connection));
  }
}

void Connections::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting_.clear();
    for (const auto& connection : served_) {
      const Connection::Phase phase = connection->phase();
      if (phase == Connection::Phase::idle || phase == Connection::Phase::reading) {
        connection->interrupt();
      }
    }
  }
  news_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

}  // namespace headroom::serve
