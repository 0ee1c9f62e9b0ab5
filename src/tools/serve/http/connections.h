// The connections that are open, each on a thread of its own. There are at most so many: where all are taken, a new one
// takes the place of the one that has kept its thread waiting for the longest.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "connection.h"

namespace headroom::serve {

class Connections {
 public:
  using Serve = std::function<void(const std::shared_ptr<Connection>&)>;

  Connections(std::size_t most, Serve serve);
  ~Connections();  // as stop()
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void add(std::shared_ptr<Connection> connection);
  // Called now and then while connections wait for a thread.
  void make_room();
  bool crowded() const;
  std::int64_t open() const;
  // Those that are not answered at the moment end at once, the others when they are; waits for all of them.
  void stop();

 private:
  void work();

  const std::size_t most_;
  const Serve serve_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::vector<std::thread> threads_;
  std::size_t idle_threads_ = 0;
  std::deque<std::shared_ptr<Connection>> waiting_;
  std::vector<std::shared_ptr<Connection>> served_;
  bool stopping_ = false;
};

}  // namespace headroom::serve
