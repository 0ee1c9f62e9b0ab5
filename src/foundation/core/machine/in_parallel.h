// Independent pieces of work, done by several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace headroom {

// Calls work(0), ..., work(n - 1), each once, on up to `threads` threads, the caller's among them. After an error no
// further piece begins, and that of the first piece that failed is thrown: the same with any number of threads.
void in_parallel(std::size_t n, std::size_t threads, const std::function<void(std::size_t)>& work);

}  // namespace headroom
