#include "data/pairs/pairs.h"

#include "data/text/support.h"

namespace headroom::data::pairs_test {

using PairsTest = FolderTest;

std::vector<std::pair<std::string, std::string>> plain(const std::vector<TextPair>& pairs) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const TextPair& pair : pairs) {
    all.emplace_back(pair.source, pair.target);
  }
  return all;
}

const std::vector<std::pair<std::string, std::string>> kThree = {
    {"eins", "one"}, {"zwei drei", "two three"}, {"ü", "x"}};

TEST_F(PairsTest, TabSeparatedAndParallelFilesGiveTheSame) {
  config::DataOptions options;
  options.pair_columns = {3, 1};
  const std::string tsv =
      write("a.tsv", "\xef\xbb\xbfone\t-\teins\r\n two three \t\t zwei drei\nx\ty\tü\tz");  // ends without a newline
  EXPECT_EQ(plain(read_pairs({.source = {tsv}, .target = {}}, options)), kThree);
  const std::string de = write("p.de", gzip("eins\nzwei drei\nü\n")), en = write("p.en", "one\ntwo three\nx");
  EXPECT_EQ(plain(read_pairs({.source = {de}, .target = {en}}, {})), kThree);
  const std::string two = write("q.tsv", "eins\tone\nzwei drei\ttwo three\nü\tx\n");
  EXPECT_EQ(plain(read_pairs({.source = {two}, .target = {}}, {})), kThree);
  EXPECT_EQ(read_pairs({.source = {two, two}, .target = {}}, {}).size(), 6U);
}

TEST_F(PairsTest, BadRowsAreNamedOrCounted) {
  const std::string good = "a\tb\n";
  const auto complaint = [&](const std::string& text) {
    const std::string file = write("bad.tsv", text);
    return user_error_of([&] { read_pairs({.source = {file}, .target = {}}, {}); });
  };
  const std::string file = at("bad.tsv");
  EXPECT_EQ(complaint(good + "a\n"), file + ":2: must have 2 columns separated by tabs (data.pair_columns), got 1");
  EXPECT_EQ(complaint(good + "\n"), file + ":2: must have 2 columns separated by tabs (data.pair_columns), got 0");
  EXPECT_EQ(complaint(good + good + "a\t \tc\n"), file + ":3: column 2 must hold a sentence, got nothing");
  EXPECT_EQ(complaint("\tb\n"), file + ":1: column 1 must hold a sentence, got nothing");
  EXPECT_EQ(complaint("a\xff\tb\n"), file + ":1: is not valid UTF-8");
  EXPECT_EQ(complaint(std::string("a\0\tb\n", 5)), file + ":1: must be text, but holds a NUL byte");
  EXPECT_HAS(complaint(""), "holds no sentence pairs");
  EXPECT_HAS(complaint(good + std::string(2 << 20, 'x') + "\tb\n"), ":2: is longer than 1 MiB");

  config::DataOptions skip;
  skip.skip_bad_rows = true;
  const std::string mixed = write("mixed.tsv", "a\tb\nx\n\t\n\xff\ty\nc\td\n");
  PairReader reader({.source = {mixed}, .target = {}}, skip);
  std::vector<TextPair> pairs;
  for (TextPair pair; reader.next(pair);) {
    pairs.push_back(pair);
  }
  EXPECT_EQ(plain(pairs), (std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(reader.rows(), 5);
  EXPECT_EQ(reader.skipped(), 3);
  EXPECT_HAS(reader.first_complaint(), "mixed.tsv:2: must have 2 columns");
  const std::string hopeless = write("hopeless.tsv", "x\ny\n");
  EXPECT_HAS(user_error_of([&] { read_pairs({.source = {hopeless}, .target = {}}, skip); }), "hopeless.tsv:1");
}

TEST_F(PairsTest, ParallelFilesMustMatch) {
  const std::string three = write("3", "a\nb\nc\n"), two = write("2", "x\ny\n"), hole = write("hole", "x\n \nz\n");
  config::DataOptions skip;
  skip.skip_bad_rows = true;
  for (const config::DataOptions& options : {config::DataOptions(), skip}) {  // no bad row can be identified
    const auto complaint = [&](std::vector<std::string> source, std::vector<std::string> target) {
      return user_error_of([&] { read_pairs({.source = std::move(source), .target = std::move(target)}, options); });
    };
    const std::string parted =
        two + ":2: must be followed by another line, as its parallel file continues with " + three;
    EXPECT_EQ(complaint({three}, {two}), parted + ":3");
    EXPECT_EQ(complaint({two}, {three}), parted + ":3");
    EXPECT_HAS(complaint({three, three}, {three}), "is one of 2 files of sources, but there are 1 of targets");
  }
  EXPECT_EQ(user_error_of([&] { read_pairs({.source = {three}, .target = {hole}}, {}); }),
            hole + ":2: must hold a sentence, got an empty line");
  EXPECT_EQ(read_pairs({.source = {three}, .target = {hole}}, skip).size(), 2U);
}

// Returns n pairs, in which every source occurs twice with different targets.
std::string many_pairs(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    std::string source = "s" + std::to_string(i / 2), target = "t" + std::to_string(i % (n - 7));
    for (int k = 0; k < (i * 7) % 11; ++k) {
      source += " word";
      target += k % 2 == 0 ? " wort" : "";
    }
    text += source + "\t" + target + "\n";
  }
  return text;
}

TEST_F(PairsTest, HeldOutPairsAreNeverTrainedOn) {
  config::DataOptions data;
  data.train = {write("all.tsv", many_pairs(2000))};
  data.validation_fraction = 0.1;
  const std::vector<TextPair> held = validation_pairs(data);
  EXPECT_NEAR(static_cast<double>(held.size()), 200.0, 60.0);
  EXPECT_EQ(plain(held), plain(validation_pairs(data)));
  const PreparedPairs prepared = prepare_pairs(data, {.vocabulary_size = 282}, folder_ / "cache");
  const PairFile file(prepared.train);
  std::set<std::string> sources, targets;
  for (const TextPair& pair : held) {
    sources.insert(pair.source);
    targets.insert(pair.target);
  }
  std::vector<std::int32_t> ids;
  for (std::int64_t pair = 0; pair < file.size(); ++pair) {
    file.source(pair, ids);
    EXPECT_FALSE(sources.contains(prepared.tokenizer->decode(ids)));
    file.target(pair, ids);
    EXPECT_FALSE(targets.contains(prepared.tokenizer->decode(ids)));
  }
  EXPECT_LE(file.size() + std::ssize(held), 2000);
  EXPECT_GT(file.size() + std::ssize(held), 1900);
  EXPECT_HAS(file.remarks(), "held out for validation");
  data.validation_fraction = 0.0;
  EXPECT_HAS(user_error_of([&] { validation_pairs(data); }), "data.validation");
  data.validation = data.train;
  EXPECT_EQ(validation_pairs(data).size(), 2000U);
}

TEST_F(PairsTest, PairsOfVeryDifferentLengthsAreNotTrainedOn) {
  config::DataOptions data;
  data.train = {write("all.tsv",
                      "a b c\tx y\n"                // the ratio 1.5 is not over the limit of 1.5
                      "a b c d\tx y\n"              // ratio 2
                      "x\ty \u00a0z\n"              // ratio 2, reversed; several spaces separate words like one space
                      "a b c d e f\tu v w x y z\n"  // six words
                      "a\tb\n")};
  data.validation = data.train;
  const auto left = [&] {
    const PairFile file(prepare_pairs(data, {.kind = config::TokenizerKind::bytes}, folder_ / "cache").train);
    return std::pair(file.size(), file.remarks());
  };
  using Left = std::pair<std::int64_t, std::string>;
  EXPECT_EQ(left(), Left(5, ""));
  data.max_length_ratio = 1.5;
  EXPECT_EQ(left(), Left(3, "2 pairs left out by their words (data.max_length_ratio = 1.5, data.max_words = 0)"));
  data.max_words = 5;
  EXPECT_EQ(left(), Left(2, "3 pairs left out by their words (data.max_length_ratio = 1.5, data.max_words = 5)"));
  data.max_length_ratio = 0.0;
  EXPECT_EQ(left(), Left(4, "1 pairs left out by their words (data.max_length_ratio = 0, data.max_words = 5)"));
  EXPECT_EQ(validation_pairs(data).size(), 5U) << "what is measured stays";
  data.max_length_ratio = 1.0;
  data.max_words = 0;
  EXPECT_EQ(left().first, 2);
}

class PairFileTest : public FolderTest {
 protected:
  PairFileTest() {
    data_.train = {write("all.tsv", many_pairs(500))};
    data_.validation = {write("validation.tsv", "a\tb\n")};
    prepared_ = prepare_pairs(data_, {.vocabulary_size = 282}, folder_ / "cache");
  }
  config::DataOptions data_;
  PreparedPairs prepared_;
};

TEST_F(PairFileTest, HoldsThePairsAndIsKept) {
  const PairFile file(prepared_.train);
  const std::vector<TextPair> pairs = read_pairs({.source = data_.train, .target = {}}, data_);
  ASSERT_EQ(file.size(), 500);
  std::vector<std::int32_t> ids;
  for (const std::int64_t pair : {0, 7, 499}) {
    file.source(pair, ids);
    EXPECT_EQ(std::ssize(ids), file.source_length(pair));
    EXPECT_EQ(prepared_.tokenizer->decode(ids), pairs[static_cast<std::size_t>(pair)].source);
    file.target(pair, ids);
    EXPECT_EQ(std::ssize(ids), file.target_length(pair));
    EXPECT_EQ(prepared_.tokenizer->decode(ids), pairs[static_cast<std::size_t>(pair)].target);
  }
  EXPECT_GE(prepared_.tokenizer->begin_id(), 0);
  EXPECT_GE(prepared_.tokenizer->end_id(), 0);
  const auto written = std::filesystem::last_write_time(prepared_.train);
  const PreparedPairs again = prepare_pairs(data_, {.vocabulary_size = 282}, folder_ / "cache");
  EXPECT_EQ(again.train, prepared_.train);
  EXPECT_EQ(std::filesystem::last_write_time(again.train), written);
  write("all.tsv", many_pairs(502));
  const PreparedPairs other = prepare_pairs(data_, {.vocabulary_size = 282}, folder_ / "cache");
  EXPECT_NE(PairFile(other.train).identity(), file.identity());
}

TEST_F(PairFileTest, EachSideMayHaveItsOwnTokenizer) {
  const PreparedPairs two = prepare_pairs(data_, {.vocabulary_size = 276}, folder_ / "cache", 278);
  const PairFile file(two.train);
  const std::vector<TextPair> pairs = read_pairs({.source = data_.train, .target = {}}, data_);
  const tokenizers::Tokenizer &sources = two.tokenizer->for_sources(), &targets = two.tokenizer->for_targets();
  EXPECT_EQ(two.tokenizer->source_vocabulary_size(), 278);
  EXPECT_EQ(two.tokenizer->vocabulary_size(), 276);
  std::vector<std::int32_t> ids;
  for (const std::int64_t pair : {0, 7, 499}) {
    file.source(pair, ids);
    EXPECT_EQ(ids, sources.encode(pairs[static_cast<std::size_t>(pair)].source));
    file.target(pair, ids);
    EXPECT_EQ(ids, targets.encode(pairs[static_cast<std::size_t>(pair)].target));
  }
  // A source tokenizer must not be a pair of tokenizers.
  tokenizers::save_tokenizer(sources, at("s.tokenizer"));
  tokenizers::save_tokenizer(targets, at("t.tokenizer"));
  tokenizers::save_tokenizer(*two.tokenizer, at("two.tokenizer"));
  const PreparedPairs given =
      prepare_pairs(data_, {.model = at("t.tokenizer"), .source_model = at("s.tokenizer")}, folder_ / "cache", 278);
  EXPECT_EQ(given.train, two.train);
  const PreparedPairs together = prepare_pairs(data_, {.model = at("two.tokenizer")}, folder_ / "cache", 278);
  EXPECT_EQ(together.tokenizer->name(), two.tokenizer->name());
  EXPECT_HAS(user_error_of([&] {
               prepare_pairs(data_, {.model = at("t.tokenizer"), .source_model = at("two.tokenizer")},
                             folder_ / "cache", 278);
             }),
             "holds two tokenizers");
  EXPECT_HAS(user_error_of([&] { prepare_pairs(data_, {.vocabulary_size = 276}, folder_ / "cache", 100); }),
             "model.source_vocabulary_size: must be at least");
}

TEST_F(PairFileTest, DamageIsDetectedAndRepaired) {
  std::string bytes = read_bytes(prepared_.train);
  const SafetensorsFile file(prepared_.train);
  const auto tokens = std::as_bytes(file.at("tokens").data);
  const std::string begin(reinterpret_cast<const char*>(tokens.data()), 64);
  const std::size_t at = bytes.find(begin);
  ASSERT_NE(at, std::string::npos);
  std::swap(bytes[at], bytes[at + 2]);
  ASSERT_NE(bytes, read_bytes(prepared_.train)) << "two ids that differ are exchanged";
  write("cache/" + std::filesystem::path(prepared_.train).filename().string(), bytes);
  EXPECT_THROW(PairFile(prepared_.train).verify(), UserError);
  set_log_level(LogLevel::quiet);
  PairFile(prepare_pairs(data_, {.vocabulary_size = 282}, folder_ / "cache").train).verify();
}

TEST_F(PairFileTest, InconsistentFilesAreRefused) {
  const auto lie = [&](std::vector<std::int64_t> ends, std::vector<std::int32_t> tokens,
                       const std::string& sources = "10") {
    SafetensorsWriter writer;
    writer.add("tokens", DType::i32, {std::ssize(tokens)}, std::as_bytes(std::span(tokens)));
    writer.add("ends", DType::i64, {std::ssize(ends)}, std::as_bytes(std::span(ends)));
    for (const auto& [key, value] : std::map<std::string, std::string>{{"format", "headroom.pairs.1"},
                                                                       {"tokenizer_name", "t"},
                                                                       {"hash", "h"},
                                                                       {"remarks", ""},
                                                                       {"vocabulary_size", "10"},
                                                                       {"source_vocabulary_size", sources}}) {
      writer.set_metadata(key, value);
    }
    writer.write(at("lie.pairs"));
    return at("lie.pairs");
  };
  EXPECT_HAS(user_error_of([&] { PairFile(lie({2, 5}, {1, 2, 3})); }), "end 1 must be from 2 to 3, got 5");
  EXPECT_HAS(user_error_of([&] { PairFile(lie({2, 1}, {1, 2, 3})); }), "end 1 must be from 2 to 3, got 1");
  EXPECT_HAS(user_error_of([&] { PairFile(lie({-1, 1}, {1, 2, 3})); }), "end 0 must be from 0 to 3, got -1");
  EXPECT_HAS(user_error_of([&] { PairFile(lie({1, 2, 3}, {1, 2, 3})); }), "at least one pair");
  EXPECT_HAS(user_error_of([&] { PairFile(lie({}, {1})); }), "at least one pair");
  const PairFile strange(lie({1, 3}, {1, 2, 10}));
  std::vector<std::int32_t> ids;
  EXPECT_HAS(user_error_of([&] { strange.target(0, ids); }), "token 2 must be from 0 to 9, got 10");
  const PairFile narrow(lie({1, 3}, {7, 8, 9}, "7"));
  EXPECT_HAS(user_error_of([&] { narrow.source(0, ids); }), "token 0 must be from 0 to 6, got 7");
  narrow.target(0, ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{8, 9}));
  EXPECT_HAS(user_error_of([&] { PairFile(lie({1, 3}, {7, 8, 9}, "-3")); }), "at least one pair");
}

TEST_F(PairFileTest, BatchesHoldEveryPairOnceAnEpochWithinTheirBounds) {
  const PairFile file(prepared_.train);
  const auto longer = [&](std::int64_t pair) {
    return std::max(file.source_length(pair), file.target_length(pair)) + 1;
  };
  for (const std::int64_t multiple : {1, 3}) {
    PairBatches batches(file, {.rows = 24, .multiple = multiple, .tokens = 200, .longest = 14, .seed = 4});
    std::vector<std::vector<std::int64_t>> orders;
    std::int64_t fits = 0;
    for (std::int64_t pair = 0; pair < file.size(); ++pair) {
      fits += longer(pair) <= 14 ? 1 : 0;
    }
    EXPECT_EQ(batches.too_long(), file.size() - fits);
    EXPECT_GT(batches.too_long(), 0);
    bool small = false, large = false;
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::set<std::int64_t> seen;
      std::vector<std::int64_t> order;
      for (std::int64_t step = 0; step < batches.per_epoch(); ++step) {
        EXPECT_EQ(batches.position(), (DataPosition{.epoch = epoch, .step = step}));
        const std::vector<std::int64_t> pairs = batches.next();
        EXPECT_EQ(std::ssize(pairs) % multiple, 0);
        EXPECT_LE(pairs.size(), 24U);
        std::int64_t longest = 0;
        for (const std::int64_t pair : pairs) {
          longest = std::max(longest, longer(pair));
          EXPECT_TRUE(seen.insert(pair).second);
          order.push_back(pair);
        }
        EXPECT_LE(longest * std::ssize(pairs), 200);
        small = small || pairs.size() < 12;
        large = large || pairs.size() > 20;
      }
      EXPECT_EQ(std::ssize(seen), fits / multiple * multiple);
      orders.push_back(order);
    }
    EXPECT_TRUE(small && large);
    EXPECT_NE(orders[0], orders[1]);
  }
}

TEST_F(PairFileTest, BatchesContinueFromAPosition) {
  const PairFile file(prepared_.train);
  const PairBatchOptions options{.rows = 16, .longest = 40, .seed = 9};
  PairBatches whole(file, options);
  for (int i = 0; i < 3 * whole.per_epoch() / 2; ++i) {
    whole.next();
  }
  PairBatches resumed(file, options);
  resumed.seek(whole.position());
  for (int i = 0; i < 2 * whole.per_epoch(); ++i) {
    ASSERT_EQ(resumed.next(), whole.next());
  }
  PairBatches other(file, {.rows = 16, .longest = 40, .seed = 10});
  resumed.seek({});
  EXPECT_NE(resumed.next(), other.next());
  EXPECT_THROW(resumed.seek({.epoch = 0, .step = whole.per_epoch()}), UserError);
  EXPECT_THROW(resumed.seek({.epoch = -1, .step = 0}), UserError);
  EXPECT_HAS(user_error_of([&] { PairBatches(file, {.rows = 4, .longest = 1}); }), "model.context_length");
}

}  // namespace headroom::data::pairs_test
