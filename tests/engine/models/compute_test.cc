#include "headroom/models/compute.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace headroom::models::compute_test {

TEST(Precision, AutomaticIsDecidedOnce) {
  const at::Device gpu(at::kCUDA, 0);
  for (const at::Device& device : {at::Device(at::kCPU), gpu}) {
    EXPECT_EQ(resolve(config::Precision::fp32, device), config::Precision::fp32);
    EXPECT_EQ(resolve(config::Precision::bf16, device), config::Precision::bf16);
    EXPECT_NE(resolve(config::Precision::automatic, device), config::Precision::automatic);
  }
  EXPECT_EQ(resolve(config::Precision::automatic, gpu), config::Precision::bf16);
}

}  // namespace headroom::models::compute_test
