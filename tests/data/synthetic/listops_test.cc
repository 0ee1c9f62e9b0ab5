#include "data/synthetic/listops.h"

#include "data/text/support.h"

namespace headroom::data::listops::listops_test {

namespace fs = std::filesystem;

int value(std::string_view text) {
  return evaluate(parse(text));
}

std::string complaint(std::string_view text) {
  return user_error_of([&] { parse(text); });
}

TEST(ListOps, EvaluatesEveryOperator) {
  EXPECT_EQ(value("7"), 7);
  EXPECT_EQ(value("[MIN 4 2 9 ]"), 2);
  EXPECT_EQ(value("[MAX 4 2 9 ]"), 9);
  EXPECT_EQ(value("[SM 4 2 9 ]"), 5);
  EXPECT_EQ(value("[MED 4 2 9 ]"), 4);
  EXPECT_EQ(value("[MED 4 2 9 5 ]"), 4) << "4.5, rounded down";
  EXPECT_EQ(value("[MED 8 2 ]"), 5);
  EXPECT_EQ(value("[MAX 2 9 [MIN 4 7 ] 0 [SM 5 6 [MED 3 ] ] ]"), 9);
  EXPECT_EQ(value("( ( ( [SM 2 ) ( ( [MIN 3 ) ] ) ) ] )"), 5) << "parentheses say nothing new";
  EXPECT_EQ(value("[SM 2[MIN 3 8]]"), 5);
}

TEST(ListOps, ReadsBackWhatItWrites) {
  const std::string text = "[MAX 2 9 [MIN 4 7 ] 0 [SM 5 6 [MED 3 ] ] ]";
  EXPECT_EQ(to_text(parse(text)), text);
}

TEST(ListOps, NamesTheErrorAndItsColumn) {
  EXPECT_EQ(complaint("[MAX 2 9"), "unbalanced: 1 of the brackets are never closed");
  EXPECT_EQ(complaint("( [MAX 2 ]"), "unbalanced: 1 of the brackets are never closed");
  EXPECT_EQ(complaint("[MAX 2 ] ]"), "unbalanced: the \"]\" in column 10 closes nothing");
  EXPECT_EQ(complaint("4 )"), "unbalanced: the \")\" in column 3 closes nothing");
  EXPECT_EQ(complaint("[MAX ]"), "the operator that ends in column 6 has no arguments");
  EXPECT_EQ(complaint("4 5"), "the expression ends before column 3, and another begins there");
  EXPECT_EQ(complaint("  "), "holds no expression");
  EXPECT_EQ(complaint("[FIRST 2 ]"),
            "column 1 must hold a digit, \"[MIN\", \"[MAX\", \"[MED\", \"[SM\" or \"]\", got \"[FIRST\"");
  EXPECT_NE(complaint("[SM 12 ]").find("got \"12\""), std::string::npos);
  EXPECT_THROW(evaluate(std::vector<std::uint16_t>{kMax, kEnd}), Error);
  EXPECT_THROW(evaluate(std::vector<std::uint16_t>{kDigit, kDigit}), Error);
  EXPECT_THROW(evaluate(std::vector<std::uint16_t>{kPadding}), Error);
  EXPECT_THROW(evaluate(std::vector<std::uint16_t>{}), Error);
}

// A recursive parser would overflow the stack.
TEST(ListOps, AMillionOpenBracketsCostNoStack) {
  constexpr int kDepth = 1'000'000;
  std::string text;
  for (int i = 0; i < kDepth; ++i) {
    text += "[SM ";
  }
  EXPECT_NE(complaint(text).find("1000000 of the brackets"), std::string::npos);
  text += '3';
  for (int i = 0; i < kDepth; ++i) {
    text += " ]";
  }
  EXPECT_EQ(value(text), 3);
}

int depth(std::span<const std::uint16_t> symbols) {
  int now = 1, most = 1;  // a digit is one level below its operator
  for (const std::uint16_t symbol : symbols) {
    now += symbol >= kMin && symbol <= kSm ? 1 : symbol == kEnd ? -1 : 0;
    most = std::max(most, now);
  }
  return most;
}

// Returns the number of arguments of each operator, in the order of their closing brackets.
std::vector<int> arguments(std::span<const std::uint16_t> symbols) {
  std::vector<int> open, ended;
  for (const std::uint16_t symbol : symbols) {
    if (symbol == kEnd) {
      ended.push_back(open.back());
      open.pop_back();
      continue;
    }
    if (!open.empty()) {
      ++open.back();
    }
    if (symbol >= kMin) {
      open.push_back(0);
    }
  }
  return ended;
}

config::DataOptions options(config::Generator generator, std::int64_t train, std::int64_t validation) {
  config::DataOptions options;
  options.generator = generator;
  options.generated_train = train;
  options.generated_validation = validation;
  return options;
}

TEST(ListOpsGenerator, ShortOnesKeepTheirBounds) {
  const Generated made = generate(options(config::Generator::listops, 3000, 500));
  std::set<std::string> seen;
  std::array<int, kClasses> classes{};
  std::set<int> depths, numbers;
  for (const LabelledSequences* split : {&made.train, &made.validation}) {
    for (std::int64_t i = 0; i < split->size(); ++i) {
      const auto symbols = split->first.at(i);
      EXPECT_LE(symbols.size(), 50U);
      EXPECT_EQ(split->labels[static_cast<std::size_t>(i)], value(to_text(symbols)));
      EXPECT_TRUE(seen.insert(to_text(symbols)).second) << to_text(symbols);
      ++classes[static_cast<std::size_t>(split->labels[static_cast<std::size_t>(i)])];
      depths.insert(depth(symbols));
      for (const int n : arguments(symbols)) {
        numbers.insert(n);
      }
    }
  }
  EXPECT_EQ(made.train.size(), 3000);
  EXPECT_EQ(made.validation.size(), 500);
  EXPECT_EQ(depths, (std::set<int>{2, 3, 4, 5, 6}));
  EXPECT_EQ(numbers, (std::set<int>{2, 3, 4, 5}));
  for (const int n : classes) {
    EXPECT_GT(n, 100);
  }
}

TEST(ListOpsGenerator, LongOnesKeepTheirBounds) {
  const Generated made = generate(options(config::Generator::listops_long, 30, 10));
  ASSERT_EQ(made.train.size(), 30);
  int deepest = 0, most = 0;
  for (std::int64_t i = 0; i < made.train.size(); ++i) {
    const auto symbols = made.train.first.at(i);
    EXPECT_GE(symbols.size(), 500U);
    EXPECT_LE(symbols.size(), 2000U);
    EXPECT_EQ(made.train.labels[static_cast<std::size_t>(i)], evaluate(symbols));
    deepest = std::max(deepest, depth(symbols));
    for (const int n : arguments(symbols)) {
      EXPECT_GE(n, 2);
      most = std::max(most, n);
    }
  }
  EXPECT_EQ(deepest, 10);
  EXPECT_EQ(most, 10);
}

TEST(ListOpsGenerator, OneSeedGivesOneSet) {
  config::DataOptions o = options(config::Generator::listops, 200, 50);
  const Generated first = generate(o), again = generate(o);
  EXPECT_EQ(first.train.identity(), again.train.identity());
  EXPECT_EQ(first.validation.identity(), again.validation.identity());
  EXPECT_EQ(generate(o, /*with_train=*/false).train.size(), 0);
  o.generated_train = 300;
  EXPECT_EQ(generate(o).validation.identity(), first.validation.identity());
  o.generator_seed = 2;
  EXPECT_NE(generate(o).validation.identity(), first.validation.identity());
}

TEST(ListOpsGenerator, StopsWhereThereAreNoMoreExpressions) {
  EXPECT_THROW(generate(options(config::Generator::none, 10, 10)), UserError);
}

class ListOpsFile : public FolderTest {
 protected:
  std::string complaint(const std::string& content, Reading reading = {.most_symbols = 100}) {
    return refusal_of([&] { read({write("x", content)}, reading); }).substr(1);
  }
};

TEST_F(ListOpsFile, ReadsLabelsAndExpressions) {
  const LabelledSequences read = listops::read({write("a.tsv", "3\t[MAX 3 1 ]\r\n\n0\t( 0 )\n")}, {.most_symbols = 4});
  ASSERT_EQ(read.size(), 2);
  EXPECT_EQ(read.labels, (std::vector<std::int32_t>{3, 0}));
  EXPECT_EQ(to_text(read.first.at(0)), "[MAX 3 1 ]");
  EXPECT_EQ(to_text(read.first.at(1)), "0");
  const LabelledSequences turned =
      listops::read({write("b.tsv", "Source\tTarget\n[MAX 3 1 ]\t3\n")}, {.most_symbols = 4});
  EXPECT_EQ(turned.size(), 1);
  EXPECT_EQ(turned.labels.front(), 3);
}

TEST_F(ListOpsFile, NamesTheLine) {
  EXPECT_EQ(complaint("3\t3\n12\t3\n"), ":2: the label must be a number from 0 to 9, got \"12\"");
  EXPECT_EQ(complaint("3\n"), ":1: must be a label, a tab and an expression, got 1 columns");
  EXPECT_EQ(complaint("3\t3\n\n3\t[MAX 3\n"), ":3: unbalanced: 1 of the brackets are never closed");
  EXPECT_EQ(complaint("3\t[MAX 3 1 ]\n", {.most_symbols = 3}),
            ":1: the expression has 4 symbols, more than model.context_length = 3");
}

TEST_F(ListOpsFile, SkipsBadRowsIfRequested) {
  const LabelledSequences read =
      listops::read({write("a.tsv", "x\t3\n3\t3\n3\t[MAX\n")}, {.most_symbols = 4, .skip_bad_rows = true});
  EXPECT_EQ(read.size(), 1);
  EXPECT_NE(complaint("x\t3\n", {.most_symbols = 4, .skip_bad_rows = true}).find("no usable row"), std::string::npos);
}

TEST(PublicListOps, EveryLabelOfTheOfficialTestSetIsItsValue) {
  const fs::path file =
      fs::path(HEADROOM_SOURCE_DIR).parent_path() / "shared" / "data" / "listops" / "test_d20s.tsv.gz";
  if (!fs::exists(file)) {
    GTEST_SKIP() << "the public data is not at " << file.string();
  }
  const LabelledSequences set = read({file.string()}, {.most_symbols = 10000});
  ASSERT_EQ(set.size(), 10000);
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    right += evaluate(set.first.at(i)) == set.labels[static_cast<std::size_t>(i)] ? 1 : 0;
  }
  EXPECT_EQ(right, 10000);
}

}  // namespace headroom::data::listops::listops_test
