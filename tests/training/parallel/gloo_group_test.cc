#include "training/parallel/gloo_group.h"

#include <gtest/gtest.h>

namespace headroom::parallel {
namespace {

TEST(GlooGroup, is_alone_without_torchrun) {
  GlooGroup world;
  EXPECT_EQ(world.size(), 1);
  EXPECT_TRUE(world.leads());
  EXPECT_EQ(world.gather("mine"), std::vector<std::string>{"mine"});
  EXPECT_TRUE(world.announce("said by itself", /*final=*/true));
}

}  // namespace
}  // namespace headroom::parallel
