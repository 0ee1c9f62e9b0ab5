// Checks that the emulated device catches accesses from the host, and counts operators and waits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "emulated_cuda.h"
#include "headroom/models/compute.h"
#include "headroom/ops/linear.h"
#include "one_thread.h"

namespace headroom::emulated_cuda::keeping_test {

const at::TensorOptions kThere = at::TensorOptions(at::kFloat).device(at::kCUDA);

// Returns the error's message, or "".
template <class Work>
std::string complaint(const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(EmulatedCuda, NewMemoryIsNotANumber) {
  at::Tensor once = at::zeros({100}, kThere);
  once.reset();
  EXPECT_TRUE(at::empty({100}, kThere).isnan().all().item<bool>()) << "nor when it was used before";
}

TEST(EmulatedCuda, AnIndexOfTheHostIsCaught) {
  const at::Tensor x = at::ones({4, 3}, kThere), here = at::zeros({2}, at::kLong);
  EXPECT_NE(complaint([&] { x.index_select(0, here); }).find("cpu"), std::string::npos);
  EXPECT_NE(complaint([&] { x.index({here}); }).find("cpu"), std::string::npos);
  EXPECT_EQ(complaint([&] { x.index_select(0, here.to(at::kCUDA)); }), "");
  // The operator is one of Headroom's, and its index is on the host.
  const at::Tensor bank = at::ones({2, 3, 5}, kThere), index = at::zeros({4, 1, 1}, at::kLong);
  EXPECT_NE(complaint([&] { ops::expert_linear({.input = x, .bank = bank, .index = index}); }).find("cpu"),
            std::string::npos);
  EXPECT_EQ(complaint([&] { ops::expert_linear({.input = x, .bank = bank, .index = index.to(at::kCUDA)}); }), "");
}

TEST(EmulatedCudaDeathTest, TheHostMayNotTouchTheDevicesMemory) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const at::Tensor x = at::ones({4}, kThere);
  EXPECT_EXIT(static_cast<void>(*static_cast<const volatile float*>(x.const_data_ptr())),
              ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(*x.mutable_data_ptr<float>() = 1.0F, ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(EmulatedCuda, AHostPointerIsCaught) {
  float here[4] = {1, 2, 3, 4};
  const c10::Storage storage(c10::Storage::use_byte_size_t(), sizeof here, at::DataPtr(here, at::Device(at::kCUDA, 0)));
  at::Tensor x = at::empty({0}, kThere);
  x.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  x.unsafeGetTensorImpl()->set_sizes_contiguous({4});
  EXPECT_NE(complaint([&] { x.sum(); }).find("the host's"), std::string::npos);
}

TEST(EmulatedCuda, CountsWaitsAndOperators) {
  const at::Tensor x = at::ones({4}, kThere);
  reset_counts();
  const at::Tensor y = (x + 1).view({2, 2}).t();  // views launch no kernel
  EXPECT_EQ(counts().all_operators(), 1);
  EXPECT_EQ(counts().all_waits(), 0);
  y.sum().item<float>();
  EXPECT_EQ(counts().waits.at("aten::_local_scalar_dense"), 1);
  y.to(at::kCPU);
  at::ones({3}).to(at::kCUDA);
  EXPECT_EQ(counts().all_waits(), 3);
  at::ones({3}).to(at::kCUDA, /*non_blocking=*/true);
  EXPECT_EQ(counts().all_waits(), 3) << "a non-blocking copy does not wait";
  y.nonzero();
  y.index({y.gt(0)});
  models::synchronize(y.device());
  EXPECT_EQ(counts().all_waits(), 6);
}

}  // namespace headroom::emulated_cuda::keeping_test
