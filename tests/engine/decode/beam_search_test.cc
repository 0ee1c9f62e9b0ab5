#include "headroom/decode/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tiny/files.h"

namespace headroom::decode::beam_search_test {

constexpr std::int64_t kWords = 6, kBegin = 1, kEnd = 2, kLongest = 4;

config::ModelOptions tiny_translator() {
  config::ModelOptions o = tiny::model(config::ModelKind::encoder_decoder);
  o.vocabulary_size = kWords;
  o.context_length = kLongest + 1;
  o.attention.position = "sinusoidal";
  return o;
}

at::Tensor sources(std::int64_t rows, std::int64_t length) {
  at::manual_seed(5);
  return at::randint(kWords, {rows, length}, at::kLong);
}

// Returns log p of the tokens and the end token, computed by a full pass.
double log_probability(const models::EncoderDecoder& model, const at::Tensor& source, const at::Tensor& valid,
                       std::vector<std::int32_t> tokens) {
  tokens.insert(tokens.begin(), static_cast<std::int32_t>(kBegin));
  const at::Tensor target = at::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())).unsqueeze(0);
  const at::Tensor p =
      at::log_softmax(model.logits({.source = source, .valid_source = valid, .target = target}, {}), 2)[0];
  double sum = 0.0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t next = i + 1 < tokens.size() ? tokens[i + 1] : kEnd;
    sum += p[static_cast<std::int64_t>(i)][next].item<double>();
  }
  return sum;
}

SearchOptions search(std::int64_t beam, double length_penalty = 0.6) {
  return {.decoding = {.beam_size = beam, .length_penalty = length_penalty}, .begin_id = kBegin, .end_id = kEnd};
}

// Returns all targets of up to kLongest tokens.
std::vector<std::vector<std::int32_t>> every_target() {
  std::vector<std::vector<std::int32_t>> all = {{}};
  for (std::size_t i = 0; i < all.size() && all[i].size() < kLongest; ++i) {
    for (std::int32_t token = 0; token < kWords; ++token) {
      if (token != kEnd) {
        all.push_back(all[i]);
        all.back().push_back(token);
      }
    }
  }
  return all;
}

TEST(BeamSearch, AWideBeamFindsTheGlobalOptimum) {
  const at::NoGradGuard no_grad;
  const models::EncoderDecoder model(tiny_translator(), 7, at::kDouble);
  const at::Tensor source = sources(2, 3);
  const auto targets = every_target();
  std::vector<std::vector<double>> log_probabilities(2);
  for (std::int64_t row = 0; row < 2; ++row) {
    for (const auto& target : targets) {
      log_probabilities[static_cast<std::size_t>(row)].push_back(
          log_probability(model, source.narrow(0, row, 1), {}, target));
    }
  }
  for (const double penalty : {0.0, 0.6, 2.0}) {
    const std::vector<Hypothesis> found = beam_search(model, source, {}, search(700, penalty), {});
    for (std::size_t row = 0; row < 2; ++row) {
      std::vector<double> scores = {-INFINITY};  // the empty target is not a candidate
      for (std::size_t i = 1; i < targets.size(); ++i) {
        scores.push_back(log_probabilities[row][i] / std::pow(static_cast<double>(targets[i].size() + 1), penalty));
      }
      const auto best = std::ranges::max_element(scores);
      EXPECT_EQ(found[row].tokens, targets[static_cast<std::size_t>(best - scores.begin())]) << penalty;
      EXPECT_NEAR(found[row].score, *best, 1e-5) << penalty;
    }
  }
}

TEST(BeamSearch, WithOneBeamIsGreedy) {
  const at::NoGradGuard no_grad;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const models::EncoderDecoder model(tiny_translator(), seed, at::kDouble);
    const at::Tensor source = sources(3, 4);
    const std::vector<Hypothesis> found = beam_search(model, source, {}, search(1), {});
    for (std::int64_t row = 0; row < 3; ++row) {
      std::vector<std::int64_t> target = {kBegin};
      while (std::ssize(target) <= kLongest) {
        const at::Tensor logits =
            model.logits({.source = source.narrow(0, row, 1), .target = at::tensor(target).unsqueeze(0)}, {});
        at::Tensor last = logits[0][-1];
        if (target.size() == 1) {
          last[kEnd] = -INFINITY;
        }
        const auto next = last.argmax().item<std::int64_t>();
        if (next == kEnd) {
          break;
        }
        target.push_back(next);
      }
      const std::vector<std::int32_t> expected(target.begin() + 1, target.end());
      EXPECT_EQ(found[static_cast<std::size_t>(row)].tokens, expected) << "seed " << seed << ", row " << row;
    }
  }
}

TEST(BeamSearch, ProbabilitiesMatchTheFullPassAndRowsDoNotInfluenceEachOther) {
  const at::NoGradGuard no_grad;
  for (const char* const projection : {"dense", "routed_heads"}) {
    config::ModelOptions o = tiny_translator();
    o.attention.projection = projection;
    o.attention.of<config::RoutingOptions>().n_experts = 4;
    o.attention.of<config::RoutingOptions>().top_k = 2;
    const models::EncoderDecoder model(o, 11, at::kDouble);
    const at::Tensor source = sources(4, 5);
    const at::Tensor lengths = at::tensor(std::vector<std::int64_t>{5, 2, 3, 5});
    const at::Tensor valid = at::arange(5).unsqueeze(0) < lengths.unsqueeze(1);
    const std::vector<Hypothesis> together = beam_search(model, source, valid, search(3), {});
    ASSERT_EQ(together.size(), 4U);
    for (std::int64_t row = 0; row < 4; ++row) {
      const at::Tensor alone = source.narrow(0, row, 1).narrow(1, 0, lengths[row].item<std::int64_t>());
      const Hypothesis expected = beam_search(model, alone, {}, search(3), {}).front();
      const Hypothesis& got = together[static_cast<std::size_t>(row)];
      EXPECT_EQ(got.tokens, expected.tokens) << projection << " " << row;
      EXPECT_NEAR(got.log_probability, log_probability(model, alone, {}, got.tokens), 1e-5) << projection << " " << row;
    }
  }
}

TEST(BeamSearch, ATranslationIsNotEmpty) {
  const at::NoGradGuard no_grad;
  config::ModelOptions o = tiny_translator();
  o.head_bias = true;
  models::EncoderDecoder model(o, 3);
  model.parameters().at("head.b").select(0, kEnd).fill_(50.0);  // the end token would come first
  for (const std::int64_t beam : {1, 3}) {
    for (const Hypothesis& found : beam_search(model, sources(2, 5), {}, search(beam), {})) {
      EXPECT_EQ(found.tokens.size(), 1U) << "beam " << beam;
    }
  }
}

TEST(BeamSearch, TranslationsEndAtTheirLimit) {
  const at::NoGradGuard no_grad;
  config::ModelOptions o = tiny_translator();
  o.head_bias = true;
  models::EncoderDecoder model(o, 3);
  model.parameters().at("head.b").select(0, kEnd).fill_(-50.0);  // the end token is never the best
  SearchOptions options = search(2);
  options.decoding.extra_length = 1;
  const at::Tensor source = sources(2, 5);
  const at::Tensor valid = at::arange(5).unsqueeze(0) < at::tensor(std::vector<std::int64_t>{2, 5}).unsqueeze(1);
  const std::vector<Hypothesis> found = beam_search(model, source, valid, options, {});
  EXPECT_EQ(found[0].tokens.size(), 2U);  // 2 source tokens, of which one is the end, plus extra_length
  EXPECT_EQ(found[1].tokens.size(), 4U);  // as many tokens as the context holds
}

TEST(BeamSearch, InvalidOptionsAreRefused) {
  const models::EncoderDecoder model(tiny_translator(), 3);
  EXPECT_THROW(beam_search(model, sources(1, 2), {}, search(0), {}), Error);
  SearchOptions options = search(2);
  options.end_id = kWords;
  EXPECT_THROW(beam_search(model, sources(1, 2), {}, options, {}), Error);
  EXPECT_TRUE(beam_search(model, sources(0, 2), {}, search(2), {}).empty());
}

}  // namespace headroom::decode::beam_search_test
