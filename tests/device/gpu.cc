// Skips all tests on a machine without a GPU.
#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace headroom::gpu {

class Gpu : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!at::hasCUDA()) {
      GTEST_SKIP() << "torch finds no GPU";
    }
  }
};

[[maybe_unused]] const auto* const kGpu = ::testing::AddGlobalTestEnvironment(new Gpu);

}  // namespace headroom::gpu
