#include "training/parallel/world.h"

#include <gtest/gtest.h>

namespace headroom::parallel {
namespace {

TEST(World, is_alone_without_torchrun) {
  World world;
  EXPECT_EQ(world.size(), 1);
  EXPECT_TRUE(world.leads());
  EXPECT_EQ(world.gather("mine"), std::vector<std::string>{"mine"});
  EXPECT_TRUE(world.announce("said by itself", /*final=*/true));
}

}  // namespace
}  // namespace headroom::parallel
