// decoding_cache_numbers(), number by number.
#include "training/cost/cache.h"

#include <gtest/gtest.h>

#include <limits>

#include "headroom/core/error.h"

namespace headroom::cost {
namespace cache_test {

using namespace config;

// T = 5, L = 4, H = 4, e = 3.
ModelOptions small() {
  ModelOptions m;
  m.n_layers = 4;
  m.d_model = 10;
  m.context_length = 5;
  m.attention.n_heads = 4;
  m.attention.d_head = 3;
  m.attention.position = "none";
  return m;
}

TEST(Cache, KeysAndValuesOfEveryToken) {
  ModelOptions m = small();
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3));
  m.memory_length = 5;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 10 * (2 * 4 * 3));
  m.attention.n_kv_heads = 2;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 10 * (2 * 2 * 3));
  m.attention.projection = "routed_heads";
  m.attention.n_kv_heads = 0;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 10 * (2 * 3));
}

TEST(Cache, LocalLayersForget) {
  ModelOptions m = small();
  m.attention.window = 2;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 2 * (2 * 4 * 3));
  m.attention.window_pattern = "1:1";
  EXPECT_EQ(decoding_cache_numbers(m), 2 * (2 + 5) * (2 * 4 * 3));
  m.attention.window = 100;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3));
}

TEST(Cache, MixtureKeys) {
  ModelOptions m = small();
  m.attention.score = "gaussian_mixture";
  m.attention.n_mixtures = 3;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * ((3 + 1) * 4 * 3));
  m.attention.keys = Keys::shifted;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3));
}

TEST(Cache, KeySideOfTheComposition) {
  ModelOptions m = small();
  m.attention.composition = "dynamic";
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3 + 10 * 4));
  m.attention.compose = {"pre"};
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3 + 5 * 4));
  m.attention.compose_groups = 2;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3 + 5 * 4));
  m.attention.compose_gates = {"query"};
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3 + 4 * 4));
  m.attention.compose_low_rank = {"query"};
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3));
  m.attention.composition = "static";
  m.attention.compose_low_rank = {"key"};
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 5 * (2 * 4 * 3));
}

TEST(Cache, LinearAttentionKeepsAState) {
  ModelOptions m = small();
  m.attention.score = "linear";
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 4 * (3 * 3 + 3));
  m.context_length = 5000;
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 4 * (3 * 3 + 3));
  m.context_length = m.memory_length = 5;  // memory moves on: its tokens are kept one by one
  EXPECT_EQ(decoding_cache_numbers(m), 4 * 10 * ((2 + 1) * 4 * 3));
}

TEST(Cache, OtherKinds) {
  ModelOptions m = small();
  m.kind = ModelKind::encoder_decoder;
  m.n_decoder_layers = 3;
  EXPECT_EQ(decoding_cache_numbers(m), 3 * (5 + 5) * (2 * 4 * 3));
  m.kind = ModelKind::classifier;
  EXPECT_EQ(decoding_cache_numbers(m), 0);
}

TEST(Cache, CountsBeyond63BitsAreRefused) {
  ModelOptions m = small();
  m.attention.d_head = std::numeric_limits<std::int64_t>::max() / 8;
  EXPECT_THROW(decoding_cache_numbers(m), UserError);
}

}  // namespace cache_test
}  // namespace headroom::cost
