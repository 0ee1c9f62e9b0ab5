// What one call of an operator cannot do without: memory to read and write once, and multiply-accumulates.
#pragma once

#include <ATen/record_function.h>

#include <vector>

namespace headroom::bench {

struct Demand {
  double bytes = 0.0;  // every tensor that is read or written, once
  double flops = 0.0;  // of matrix products, 2 a multiply-accumulate; 0 for all else
  Demand& operator+=(const Demand& other);
  Demand& operator-=(const Demand& other);
};

// A call from its beginning, where its inputs can be seen, to its end, where its outputs can: the callbacks must ask
// for both. Views move nothing.
class Call {
 public:
  explicit Call(const at::RecordFunction& begun);
  Demand end(const at::RecordFunction& ended) const;

 private:
  bool in_place_ = false;
  std::vector<const void*> storages_;
  double read_ = 0.0, first_ = 0.0, flops_ = 0.0;  // bytes of all inputs, and of the first
};

}  // namespace headroom::bench
