// The least that a call of an operator must do: memory traffic and multiply-accumulates.
#pragma once

#include <ATen/record_function.h>

#include <vector>

namespace headroom::bench {

struct Demand {
  double bytes = 0.0;  // every tensor that is read or written, counted once
  double flops = 0.0;  // of matrix multiplications, 2 per multiply-accumulate; 0 for other operators
  Demand& operator+=(const Demand& other);
  Demand& operator-=(const Demand& other);
};

// A call, created in the callback at its beginning with the inputs and ended in the callback at its end with the
// outputs: the callbacks must ask for both. Views move nothing.
class Call {
 public:
  explicit Call(const at::RecordFunction& begun);
  Demand end(const at::RecordFunction& ended) const;

 private:
  bool in_place_ = false;
  std::vector<const void*> storages_;
  double read_ = 0.0, first_ = 0.0, flops_ = 0.0;  // read_: bytes of all inputs; first_: of the first one
};

}  // namespace headroom::bench
