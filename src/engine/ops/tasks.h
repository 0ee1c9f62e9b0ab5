// Work of uneven size over torch's threads.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace headroom::ops {

// Calls body(task, own) for each task in [0, n), each thread taking the next one that is left; `own` is made once a
// thread by make() and handed to finish() at the thread's end. Which thread takes a task is left to chance, so a task's
// result must not depend on it.
template <class Make, class Body, class Finish>
void for_each_task(std::int64_t n, const Make& make, const Body& body, const Finish& finish) {
  std::atomic<std::int64_t> next{0};
  const std::int64_t threads = std::min<std::int64_t>(n, at::get_num_threads());
  at::parallel_for(0, threads, 1, [&](std::int64_t /*begin*/, std::int64_t /*end*/) {
    auto own = make();
    for (std::int64_t task = next++; task < n; task = next++) {
      body(task, own);
    }
    finish(own);
  });
}

}  // namespace headroom::ops
