// Costs of every legal combination of projection, score, keys, composition, position and mask.
#include <gtest/gtest.h>

#include <functional>

#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "training/cost/cost.h"

namespace headroom::cost {
namespace combinations_test {

using namespace config;

template <class Enum, class Visit>
void each(Enum& slot, Visit visit) {
  const Enum before = slot;
  for (const auto& [value, name] : values_of<Enum>()) {
    slot = value;
    visit();
  }
  slot = before;
}

template <class Part, class Visit>
void each(PartName<Part>& slot, Visit visit) {
  const PartName<Part> before = slot;
  for (const Part* part : all_parts<Part>()) {
    slot = part->name();
    visit();
  }
  slot = before;
}

// Calls `visit` for every model that passes the checks.
int each_model(const std::function<void(const ModelOptions&)>& visit) {
  ModelOptions m;
  AttentionOptions& a = m.attention;
  m.vocabulary_size = 11;
  m.d_model = 8;
  m.context_length = 6;
  a.d_head = 4;
  a.n_heads = a.of<config::RoutingOptions>().top_k = 2;
  int legal = 0;
  const auto reach = [&] {
    try {
      check(m, "x");
    } catch (const UserError&) {
      return;
    }
    ++legal;
    visit(m);
  };
  const auto masks = [&] {
    for (const bool bias : {false, true}) {
      for (const std::int64_t memory : {0, 6}) {
        for (const std::int64_t window : {0, 3}) {
          a.bias = bias;
          a.of<config::PositionOptions>().position_bias = bias && a.position == "relative";
          m.memory_length = memory;
          a.window = window;
          reach();
        }
      }
    }
  };
  each(a.projection, [&] {
    each(a.score, [&] {
      each(a.of<config::MixtureOptions>().keys, [&] {
        each(a.of<config::MixtureOptions>().prior, [&] { each(a.composition, [&] { each(a.position, masks); }); });
      });
    });
  });
  return legal;
}

TEST(Combinations, AllHaveCosts) {
  const int legal = each_model([](const ModelOptions& m) {
    EXPECT_GT(count_parameters(m), 0);
    const PaperCost paper = paper_cost(m);
    EXPECT_GT(paper.attention_macs, 0);
    EXPECT_GT(paper.attention_memory, 0);
    EXPECT_GT(executed_cost(m, 2).attention_macs, 0);
    EXPECT_GT(decoding_cache_elements(m), 0);
  });
  EXPECT_GT(legal, 1000);
}

}  // namespace combinations_test
}  // namespace headroom::cost
