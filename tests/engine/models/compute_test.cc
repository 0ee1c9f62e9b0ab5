#include "headroom/models/compute.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "foundation/config/complaint.h"
#include "headroom/core/error.h"

namespace headroom::models {
namespace compute_test {

TEST(Precision, AutomaticIsDecidedOnce) {
  const at::Device gpu(at::kCUDA, 0);
  for (const at::Device& device : {at::Device(at::kCPU), gpu}) {
    EXPECT_EQ(resolve(config::Precision::fp32, device), config::Precision::fp32);
    EXPECT_EQ(resolve(config::Precision::bf16, device), config::Precision::bf16);
    EXPECT_NE(resolve(config::Precision::automatic, device), config::Precision::automatic);
  }
  EXPECT_EQ(resolve(config::Precision::automatic, gpu), config::Precision::bf16);
}

TEST(Context, FollowsTheOptions) {
  config::TrainOptions options;
  options.precision = config::Precision::bf16;
  options.implementation = config::Implementation::reference;
  EXPECT_EQ(make_context(options, at::kCPU).compute_dtype, at::kBFloat16);
  EXPECT_EQ(make_context(options, at::kCPU).implementation, config::Implementation::reference);
  options.precision = config::Precision::fp32;
  EXPECT_FALSE(make_context(options, at::kCPU).compute_dtype.has_value());
}

}  // namespace compute_test
}  // namespace headroom::models
