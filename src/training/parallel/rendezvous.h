// A place for processes of this machine to meet, for programs that start them themselves (benchmarks) instead of
// torchrun.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace headroom::parallel {

class Rendezvous {
 public:
  Rendezvous();  // throws Error where no port can be opened
  ~Rendezvous();
  // What torchrun sets in the environment of rank `rank` of `size`.
  std::vector<std::pair<std::string, std::string>> variables(int rank, int size) const;

 private:
  class Store;
  std::unique_ptr<Store> store_;
};

}  // namespace headroom::parallel
