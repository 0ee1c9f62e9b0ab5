// The order of an epoch over a set that lies in files (example_order.h).
#pragma once

#include <cstdint>
#include <vector>

#include "example_order.h"

namespace headroom::data {

// Any place of it can be asked for at once.
class RunOrder {
 public:
  RunOrder(const RunShuffle& runs, std::uint64_t seed);

  std::int64_t operator()(std::int64_t place) const;  // an example's number

 private:
  std::uint64_t seed_;
  std::int64_t together_;
  std::vector<std::int64_t> begins_;  // of the files in the epoch's order: the first example's number
  std::vector<std::int64_t> ends_;    // and the place after the last one
};

}  // namespace headroom::data
