// Stubs: just enough of Gloo's declarations for torch's ProcessGroupGloo.hpp to compile. torch contains the library but
// not its headers. This project only passes pointers to these classes around.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
