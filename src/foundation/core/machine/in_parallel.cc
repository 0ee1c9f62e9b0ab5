#include "in_parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace headroom {

void in_parallel(std::size_t n, std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed = n;
  std::exception_ptr error;
  const auto run = [&] {
    for (std::size_t i = next++; i < n; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        next = n;
        if (i < failed) {  // pieces begin in their order, so that the first that fails has begun by now
          failed = i;
          error = std::current_exception();
        }
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t t = 1; t < std::min(threads, n); ++t) {
      helpers.emplace_back(run);
    }
    run();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace headroom
