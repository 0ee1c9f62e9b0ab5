#include <cstdlib>

#include "data/synthetic/run_text.h"
#include "data/text/support.h"
#include "data/tokens/token_file.h"

namespace headroom::data::built_in_corpus_test {

namespace fs = std::filesystem;

// Reads a small folder instead of torch's sources.
class BuiltInCorpusTest : public FolderTest {
 protected:
  BuiltInCorpusTest() {
    if (const char* before = std::getenv("HEADROOM_TORCH_DIR")) {
      before_ = before;
    }
    ::setenv("HEADROOM_TORCH_DIR", at("torch").c_str(), 1);
    for (int i = 0; i < 60; ++i) {
      write(fmt::format("torch/{}/f{:02}.{}", i % 3, i, i % 2 == 0 ? "py" : "h"), fmt::format("text {:02}\n", i));
    }
  }
  ~BuiltInCorpusTest() override {
    before_.empty() ? ::unsetenv("HEADROOM_TORCH_DIR") : ::setenv("HEADROOM_TORCH_DIR", before_.c_str(), 1);
  }
  static std::string text(Split split) { return text_of(*open_built_in_corpus(split)); }
  std::string before_;
};

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST_F(BuiltInCorpusTest, SplitsByFileInAFixedOrder) {
  const std::string train = text(Split::train), validation = text(Split::validation);
  EXPECT_EQ(train, text(Split::train));
  // By name, the files of folder 0 (0, 3, 6, ...) come first, then 1 and 2, twenty each. Every 20th file is for
  // validation.
  EXPECT_EQ(sorted_lines(validation), (std::vector<std::string>{"text 57", "text 58", "text 59"}));
  std::vector<std::string> all = sorted_lines(train + validation);
  ASSERT_EQ(all.size(), 60U);
  EXPECT_EQ(all.front(), "text 00");
  EXPECT_EQ(all.back(), "text 59");
  EXPECT_NE(sorted_lines(train).front(), train.substr(0, 7));  // in random order, not by name
}

TEST_F(BuiltInCorpusTest, LeavesOutFilesThatAreNotSources) {
  const std::string before = text(Split::train) + text(Split::validation);
  const std::string print = open_built_in_corpus(Split::train)->fingerprint();
  write("torch/lib/big.so", "binary");
  write("torch/data.json", "{}");
  fs::create_symlink(at("torch/0/f00.py"), at("torch/link.py"));
  fs::create_directory_symlink(at("torch/0"), at("torch/again"));
  EXPECT_EQ(text(Split::train) + text(Split::validation), before);
  EXPECT_EQ(open_built_in_corpus(Split::train)->fingerprint(), print);
  write("torch/z/empty.py", "");
  write("torch/z/latin.py", "caf\xe9\n");
  write("torch/z/binary.h", std::string("a\0b\n", 4));
  EXPECT_EQ(text(Split::train) + text(Split::validation), before);
  EXPECT_NE(open_built_in_corpus(Split::train)->fingerprint(), print);
  write("torch/z/no_end.hpp", "int no_end;");
  EXPECT_EQ(sorted_lines(text(Split::train)).front(), "int no_end;");
}

TEST_F(BuiltInCorpusTest, ValidationIsBounded) {
  for (int i = 0; i < 400; ++i) {  // these names sort first; every 20th file is large
    write(fmt::format("torch/00/g{:03}.py", i), std::string(i % 20 == 19 ? 100000 : 10, 'x') + "\n");
  }
  const std::size_t size = text(Split::validation).size();
  EXPECT_GT(size, 900000U);
  EXPECT_LE(size, std::size_t{1} << 20);
  write("torch/00/g019.py", std::string(200000, 'y'));
  EXPECT_EQ(text(Split::validation).find('y'), std::string::npos);
}

TEST_F(BuiltInCorpusTest, SaysWhereItLooked) {
  ::setenv("HEADROOM_TORCH_DIR", at("nowhere").c_str(), 1);
  try {
    open_built_in_corpus(Split::train);
    FAIL() << "no error";
  } catch (const UserError&) {
    FAIL() << "the user did nothing wrong";
  } catch (const Error& error) {
    EXPECT_HAS(std::string(error.what()), at("nowhere"));
    EXPECT_HAS(std::string(error.what()), "HEADROOM_TORCH_DIR");
  }
  fs::create_directory(at("empty"));
  ::setenv("HEADROOM_TORCH_DIR", at("empty").c_str(), 1);
  EXPECT_THROW(open_built_in_corpus(Split::train), Error);
}

TEST_F(BuiltInCorpusTest, IsTheDefaultOfRunsWithoutFiles) {
  EXPECT_EQ(text_of(*open_split({}, Split::train)), text(Split::train));
  EXPECT_EQ(text_of(*open_split({}, Split::validation)), text(Split::validation));
  const PreparedData prepared =
      prepare_data({}, {.kind = config::TokenizerKind::words, .vocabulary_size = 0}, folder_ / "cache");
  EXPECT_EQ(TokenFile(prepared.train.front().file).size(), 57 * 3);
  EXPECT_EQ(TokenFile(prepared.validation.file).size(), 3 * 3);
}

// The torch that Headroom was built with contains enough text for a demo.
TEST(InstalledTorch, HasACorpus) {
  EXPECT_GT(open_built_in_corpus(Split::train)->bytes_total(), std::int64_t{16} << 20);
  const auto source = open_built_in_corpus(Split::validation);
  EXPECT_GT(source->bytes_total(), std::int64_t{900} << 10);
  std::string block;
  ASSERT_TRUE(source->next(block));
  EXPECT_FALSE(block.empty());
}

}  // namespace headroom::data::built_in_corpus_test
