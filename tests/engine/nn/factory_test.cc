// Every part of attention that a config may name has its layer, and every layer its part.
#include <gtest/gtest.h>

#include "headroom/config/attention_part.h"
#include "headroom/nn/attention.h"

namespace headroom::nn {
namespace factory_test {

template <class Part, class Make>
void expect_layers() {
  for (const Part* part : config::all_parts<Part>()) {
    EXPECT_NE(factory_of<Make>(part->name()), nullptr) << part->name();
  }
  EXPECT_EQ(config::all_parts<Part>().size(), factories<Make>().size());
}

TEST(Factory, EveryPartHasALayer) {
  expect_layers<config::ProjectionPart, MakeProjection>();
  expect_layers<config::ScorePart, MakeScore>();
  expect_layers<config::CompositionPart, MakeComposition>();
  expect_layers<config::PositionPart, MakePosition>();
  expect_layers<config::OutputGatePart, MakeOutputGate>();
  EXPECT_THROW(factory_of<MakeScore>("liner"), Error);
}

}  // namespace factory_test
}  // namespace headroom::nn
