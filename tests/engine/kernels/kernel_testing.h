// Helpers for the kernels' tests: they select instruction sets and detect accesses out of bounds.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "engine/kernels/cpu/attention/softmax_rows.h"

namespace headroom::kernels::testing {

// Runs `body` with each instruction set in turn, and no other enabled.
template <class Body>
void on_every_target(const Body& body) {
  std::int64_t left = hwy::SupportedTargets();
  while (left != 0) {
    const std::int64_t target = left & -left;
    left &= ~target;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(simd_target());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Returns a copy with NaNs on both sides, to detect reads and writes out of bounds.
inline at::Tensor guarded(const at::Tensor& values) {
  const at::Tensor wide = at::full({values.numel() + 32}, std::numeric_limits<float>::quiet_NaN());
  wide.narrow(0, 16, values.numel()).copy_(values);
  return wide;
}

inline float* inner(const at::Tensor& wide) {
  return wide.mutable_data_ptr<float>() + 16;
}

inline void expect_guard_untouched(const at::Tensor& wide, const char* what) {
  const std::int64_t n = wide.numel() - 32;
  EXPECT_TRUE(wide.narrow(0, 0, 16).isnan().all().item<bool>()) << what;
  EXPECT_TRUE(wide.narrow(0, 16 + n, 16).isnan().all().item<bool>()) << what;
}

// The sizes are near multiples of the SIMD widths.
inline const std::vector<std::int64_t> kSizes = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 67, 130};

}  // namespace headroom::kernels::testing
