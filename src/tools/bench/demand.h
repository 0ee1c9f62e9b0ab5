// The minimum work of an operator call: memory traffic and multiply-accumulates.
#pragma once

#include <ATen/record_function.h>

#include <vector>

namespace headroom::bench {

struct Demand {
  double bytes = 0.0;  // each tensor read or written counts once
  double flops = 0.0;  // of matrix multiplications, 2 per multiply-accumulate; 0 for other operators
  Demand& operator+=(const Demand& other);
  Demand& operator-=(const Demand& other);
};

// Measures a call: created in the operator's start callback with the inputs and finished in its end callback with the
// outputs, so the callbacks must request both. Views move no bytes.
class Call {
 public:
  explicit Call(const at::RecordFunction& begun);
  Demand end(const at::RecordFunction& ended) const;

 private:
  bool in_place_ = false;
  std::vector<const void*> storages_;
  double read_ = 0.0, first_ = 0.0, flops_ = 0.0;  // read_: bytes of all inputs; first_: bytes of the first
};

}  // namespace headroom::bench
