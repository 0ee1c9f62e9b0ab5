// Tests that every answer follows from its row, that rows are functions of their number, and that bad sizes are
// refused.
#include "data/synthetic/sequences.h"

#include "folder_test.h"

namespace headroom::data::sequences_test {

using config::Synthetic;

config::DataOptions options(Synthetic task, std::int64_t items = 0, std::int64_t gap = 0) {
  config::DataOptions o;
  o.synthetic = task;
  o.synthetic_items = items;
  o.synthetic_gap = gap;
  return o;
}

SyntheticRow row(const config::DataOptions& o, std::int64_t number = 0, std::int64_t length = 64) {
  check_synthetic(o, length);
  return synthetic_row(o, Split::train, number, length);
}

std::int64_t answers(const SyntheticRow& r) {
  return std::count_if(r.targets.begin(), r.targets.end(), [](auto t) { return t >= 0; });
}

TEST(SyntheticSequencesTest, LookupTakesABitOfEachOffset) {
  const SyntheticRow r = row(options(Synthetic::lookup, 3));
  for (std::size_t i = 0; i < r.tokens.size(); ++i) {
    if (i < 7) {
      EXPECT_EQ(r.targets[i], -1);
    } else {
      EXPECT_EQ(r.targets[i], (r.tokens[i - 1] & 1) | (r.tokens[i - 4] & 2) | (r.tokens[i - 7] & 4));
    }
  }
}

TEST(SyntheticSequencesTest, RecallAsksForEachKeysValueOnce) {
  for (const std::int64_t gap : {0, 20}) {
    const SyntheticRow r = row(options(Synthetic::recall, 6, gap));
    std::map<std::int32_t, std::int32_t> value_of;
    for (std::size_t i = 0; i < 12; i += 2) {
      value_of[r.tokens[i]] = r.tokens[i + 1];
    }
    EXPECT_EQ(value_of.size(), 6U);
    EXPECT_EQ(answers(r), 6);
    for (std::size_t i = 12; i < r.tokens.size(); ++i) {
      if (r.targets[i] >= 0) {
        EXPECT_EQ(r.targets[i], value_of.at(r.tokens[i]));
        EXPECT_EQ(r.tokens[i + 1], r.targets[i]);
        if (gap > 0) {
          EXPECT_EQ(r.tokens[i - static_cast<std::size_t>(gap)], r.tokens[i]);
        }
      }
    }
  }
}

TEST(SyntheticSequencesTest, CopyingRepeatsTheItemsInOrder) {
  const SyntheticRow r = row(options(Synthetic::copying, 5));
  std::vector<std::int32_t> items, asked;
  for (std::size_t i = 0; i < r.tokens.size(); ++i) {
    if (r.targets[i] >= 0) {
      asked.push_back(r.targets[i]);
    } else if (r.tokens[i] < 16) {
      items.push_back(r.tokens[i]);
    }
  }
  EXPECT_EQ(items, asked);
  EXPECT_EQ(asked.size(), 5U);
}

TEST(SyntheticSequencesTest, InductionAsksForTheTokenAfterTheMarker) {
  for (const std::int64_t gap : {0, 9}) {
    const SyntheticRow r = row(options(Synthetic::induction, 0, gap));
    const auto first =
        static_cast<std::size_t>(std::find(r.tokens.begin(), r.tokens.end(), r.tokens.back()) - r.tokens.begin());
    EXPECT_EQ(answers(r), 1);
    EXPECT_EQ(r.targets.back(), r.tokens[first + 1]);
    if (gap > 0) {
      EXPECT_EQ(first, r.tokens.size() - 10);
    }
  }
}

TEST(SyntheticSequencesTest, NeedlesAsksForTheValuesOfOneOfTwoKeys) {
  const config::DataOptions o = options(Synthetic::needles, 3);
  check_synthetic(o, 60);
  std::string text;
  for (int i = 0; i < 500; ++i) {
    text += static_cast<char>('a' + i % 26);
  }
  text += "\xc3\xa9";  // not ASCII, so left out
  const SyntheticRow r = synthetic_row(o, Split::train, 5, 60, text);
  const std::int32_t key = r.tokens[57];
  EXPECT_EQ(r.tokens[56], 129);
  std::vector<std::int32_t> values, asked;
  std::map<std::int32_t, int> keys;
  for (std::size_t i = 0; i < 56; ++i) {
    if (r.tokens[i] >= 130) {
      ++keys[r.tokens[i]];
      if (r.tokens[i] == key) {
        values.push_back(r.tokens[i + 1]);
      }
      ++i;  // skips the value
    } else {
      EXPECT_TRUE(r.tokens[i] == ' ' || (r.tokens[i] >= 'a' && r.tokens[i] <= 'z'));
    }
  }
  EXPECT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[key], 3);
  EXPECT_EQ(answers(r), 3);
  EXPECT_EQ(std::vector<std::int32_t>(r.targets.begin() + 57, r.targets.end()), values);
  EXPECT_EQ(std::vector<std::int32_t>(r.tokens.begin() + 58, r.tokens.end()),
            std::vector<std::int32_t>(values.begin(), values.end() - 1));
}

TEST(SyntheticSequencesTest, StateTasksAskForTheProductSoFar) {
  const SyntheticRow bits = row(options(Synthetic::parity));
  std::int32_t parity = 0;
  for (std::size_t i = 0; i < bits.tokens.size(); ++i) {
    EXPECT_EQ(bits.targets[i], parity ^= bits.tokens[i]);
  }
  // The first target is the first permutation itself; every target is one of the 120 permutations.
  const SyntheticRow permutations = row(options(Synthetic::permutations));
  EXPECT_EQ(permutations.targets[0], permutations.tokens[0]);
  EXPECT_TRUE(
      std::all_of(permutations.targets.begin(), permutations.targets.end(), [](auto t) { return t >= 0 && t < 120; }));
}

TEST(SyntheticSequencesTest, RowsAreFunctionsOfSeedSplitAndNumber) {
  const config::DataOptions o = options(Synthetic::recall);
  EXPECT_EQ(row(o, 3).tokens, row(o, 3).tokens);
  EXPECT_NE(row(o, 3).tokens, row(o, 4).tokens);
  EXPECT_NE(row(o, 3).tokens, synthetic_row(o, Split::validation, 3, 64).tokens);
  config::DataOptions other = o;
  other.generator_seed = 2;
  EXPECT_NE(row(o, 3).tokens, row(other, 3).tokens);
}

TEST(SyntheticSequencesTest, RefusesSizesThatDoNotFit) {
  const auto refused = [](const config::DataOptions& o, std::int64_t length, const std::string& key) {
    EXPECT_HAS(user_error_of([&] { check_synthetic(o, length); }), key);
  };
  refused(options(Synthetic::recall, 8), 31, "model.context_length");
  refused(options(Synthetic::lookup, 9), 64, "data.synthetic_items");
  refused(options(Synthetic::needles, 8), 40, "model.context_length");
  refused(options(Synthetic::parity, 2), 64, "data.synthetic_items");
  refused(options(Synthetic::copying, 8, 5), 64, "data.synthetic_gap");
  refused(options(Synthetic::recall, 8, 5), 64, "data.synthetic_gap");
  refused(options(Synthetic::induction, 0, 63), 64, "model.context_length");
}

TEST(SyntheticSequencesTest, NeedsTheVocabularyOfItsRows) {
  const std::pair<Synthetic, std::int64_t> kTokens[] = {{Synthetic::lookup, 16},   {Synthetic::recall, 129},
                                                        {Synthetic::copying, 130}, {Synthetic::induction, 130},
                                                        {Synthetic::parity, 2},    {Synthetic::permutations, 120}};
  for (const auto& [task, tokens] : kTokens) {
    const config::DataOptions o = options(task);
    check_synthetic(o, 64, tokens);
    EXPECT_THROW(check_synthetic(o, 64, tokens - 1), UserError) << config::name_of(task);
    for (std::int64_t number = 0; number < 50; ++number) {
      const SyntheticRow r = row(o, number);
      EXPECT_LT(*std::max_element(r.tokens.begin(), r.tokens.end()), tokens) << config::name_of(task);
      EXPECT_LT(*std::max_element(r.targets.begin(), r.targets.end()), tokens) << config::name_of(task);
    }
  }
}

TEST(SyntheticSequencesTest, ChanceMatchesARandomPossibleAnswer) {
  EXPECT_DOUBLE_EQ(chance_level(options(Synthetic::lookup, 3)), 1.0 / 8.0);
  EXPECT_DOUBLE_EQ(chance_level(options(Synthetic::recall, 5)), 1.0 / 5.0 + 4.0 / 5.0 / 64.0);
  EXPECT_DOUBLE_EQ(chance_level(options(Synthetic::needles, 5)), 1.0 / 10.0);
  EXPECT_DOUBLE_EQ(chance_level(options(Synthetic::parity)), 0.5);
}

}  // namespace headroom::data::sequences_test
