// Tests that model.vocabulary_size and tokenizer.vocabulary_size are derived from each other.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "complaint.h"
#include "headroom/config/config.h"

namespace headroom::config::vocabulary_test {

struct Sizes {
  std::int64_t model, tokenizer;
  bool follows;
  bool operator==(const Sizes&) const = default;
};

void PrintTo(const Sizes& sizes, std::ostream* out) {
  *out << sizes.model << ", " << sizes.tokenizer << (sizes.follows ? ", follows" : "");
}

Sizes sizes_of(const Config& config) {
  return {config.model.vocabulary_size, config.tokenizer.vocabulary_size, config.vocabulary_follows_tokenizer};
}

Sizes sizes(std::string_view text) {
  const Config config = parse_config(text, "x");
  EXPECT_EQ(subject_of(complaint_of([&] { check(config, "x"); })), "no error") << text;
  return sizes_of(config);
}

TEST(Vocabulary, OneGivenSetsTheOther) {
  EXPECT_EQ(sizes(""), (Sizes{8000, 8000, true}));
  EXPECT_EQ(sizes("model.vocabulary_size = 2000"), (Sizes{2000, 2000, false}));
  EXPECT_EQ(sizes("tokenizer.vocabulary_size = 3000"), (Sizes{3000, 3000, true}));
  EXPECT_EQ(sizes("model.vocabulary_size = 3000\ntokenizer.vocabulary_size = 2000"), (Sizes{3000, 2000, false}));
  const std::string words = "tokenizer.kind = \"words\"\n";
  EXPECT_EQ(sizes(words), (Sizes{8000, 0, true}));
  EXPECT_EQ(sizes(words + "model.vocabulary_size = 3000"), (Sizes{3000, 3000, false}));
  const std::string bytes = "tokenizer.kind = \"bytes\"\n";
  EXPECT_EQ(sizes(bytes), (Sizes{256, 256, true}));
  EXPECT_EQ(sizes(bytes + "model.vocabulary_size = 205"), (Sizes{205, 205, false}));
  EXPECT_EQ(sizes(bytes + "tokenizer.vocabulary_size = 205"), (Sizes{205, 205, true}));
  const Config many = parse_config(bytes + "tokenizer.vocabulary_size = 257", "x");
  EXPECT_EQ(subject_of(complaint_of([&] { check(many, "x"); })), "x: tokenizer.vocabulary_size");
  EXPECT_EQ(sizes("tokenizer.kind = \"words\"\ntokenizer.vocabulary_size = 0").follows, true);
  EXPECT_EQ(sizes("tokenizer.model = \"a.model\"").follows, true);
}

TEST(Vocabulary, MaskedModelsHaveTwoIdsMore) {
  const std::string masked = "model.kind = \"masked_language_model\"\n", bytes = "tokenizer.kind = \"bytes\"\n";
  EXPECT_EQ(sizes(masked + "tokenizer.vocabulary_size = 3000"), (Sizes{3002, 3000, true}));
  EXPECT_EQ(sizes(masked + "model.vocabulary_size = 3000"), (Sizes{3000, 2998, false}));
  EXPECT_EQ(sizes(masked + bytes), (Sizes{258, 256, true}));
  const Config equal = parse_config(masked + "model.vocabulary_size = 99\ntokenizer.vocabulary_size = 99", "x");
  EXPECT_EQ(subject_of(complaint_of([&] { check(equal, "x"); })), "x: model.vocabulary_size");
}

TEST(Vocabulary, WrittenKeysCountAsGiven) {
  const Config config = parse_config("tokenizer.vocabulary_size = 3000", "x");
  EXPECT_EQ(sizes_of(parse_config(to_toml(config), "copy")), (Sizes{3000, 3000, false}));
}

TEST(Vocabulary, OverridesAreGivenToo) {
  const auto file = std::filesystem::temp_directory_path() / ("headroom_vocabulary_" + std::to_string(::getpid()));
  std::ofstream(file) << "tokenizer.vocabulary_size = 3000\n";
  const auto with = [&](const std::vector<std::string>& overrides) {
    return sizes_of(load_config(file.string(), overrides));
  };
  EXPECT_EQ(with({}), (Sizes{3000, 3000, true}));
  EXPECT_EQ(with({"tokenizer.vocabulary_size=500"}), (Sizes{500, 500, true}));
  EXPECT_EQ(with({"model.vocabulary_size=4000"}), (Sizes{4000, 3000, false}));
  EXPECT_EQ(with({"tokenizer.kind=bytes"}), (Sizes{256, 256, true}));
  EXPECT_EQ(subject_of(complaint_of([&] {
              with({"tokenizer.kind=bytes", "tokenizer.vocabulary_size=257"});
            })),
            "--set: tokenizer.vocabulary_size");
  EXPECT_EQ(subject_of(complaint_of([&] { with({"model.vocabulary_size=400"}); })), "--set: model.vocabulary_size");
  std::filesystem::remove(file);
}

TEST(Vocabulary, ATokenFileHasItsOwn) {
  const std::string sizes = "model.vocabulary_size = 300\ntokenizer.vocabulary_size = 8000\n";
  const auto complaint = [](const std::string& text) {
    return subject_of(complaint_of([&] { check(parse_config(text, "x"), "x"); }));
  };
  EXPECT_EQ(complaint(sizes + "data.train = [\"a.tokens\"]"), "no error");
  EXPECT_EQ(complaint(sizes + "data.train = [\"tokens.txt\"]"), "x: model.vocabulary_size");
  EXPECT_TRUE(is_token_file("x.tokens") && is_token_file("*.safetensors") && !is_token_file("tokens.txt"));
}

TEST(Vocabulary, AChangeUpdatesDependentValues) {
  const auto file = std::filesystem::temp_directory_path() / ("headroom_change_" + std::to_string(::getpid()));
  std::ofstream(file) << "tokenizer.vocabulary_size = 3000\n";
  Config config = load_config(file.string());
  std::filesystem::remove(file);
  change(config, {"tokenizer.vocabulary_size=500", "tokenizer.model=pieces.model"}, "--vary");
  EXPECT_EQ(sizes_of(config), (Sizes{500, 500, true}));
  EXPECT_EQ(config.tokenizer.model, (std::filesystem::current_path() / "pieces.model").string());
  change(config, {"tokenizer.kind=bytes", "tokenizer.vocabulary_size=200"}, "--vary");
  EXPECT_EQ(sizes_of(config), (Sizes{200, 200, true}));
}

}  // namespace headroom::config::vocabulary_test
