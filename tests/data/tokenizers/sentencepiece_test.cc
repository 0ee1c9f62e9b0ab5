#include <thread>

#include "data/text/support.h"
#include "data/tokenizers/sentencepiece/line_sample.h"
#include "data/tokenizers/sentencepiece/sentencepiece_model.h"
#include "foundation/core/text/utf8.h"
#include "fuzz.h"

namespace headroom::tokenizers::sentencepiece_test {

using config::TokenizerKind;
using Ids = std::vector<std::int32_t>;

constexpr std::string_view kCode =
    "// A comment, and <unk> <s> </s> <0x0A> in it\n"
    "#include <vector>\n\n"
    "template <class T>\n"
    "T sum(const std::vector<T>& values) {\n"
    "\tT total = 0;\n"
    "    for (const T& value : values) {\n"
    "        total += value;  // 3.14159 and 2.71828\n"
    "    }\n"
    "    return total;\n"
    "}\n\n\n";

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

class SentencePieceTest : public FolderTest {
 protected:
  std::unique_ptr<Tokenizer> train(const config::TokenizerOptions& options, std::string_view text) const {
    return train_tokenizer(options, *data::open_text({write("train.txt", text)}, {}));
  }
  std::unique_ptr<Tokenizer> of_code(bool keep_whitespace) const {
    return train({.vocabulary_size = 360, .keep_whitespace = keep_whitespace}, repeated(kCode, 20));
  }
};

TEST_F(SentencePieceTest, RestoresEveryText) {
  const auto tokenizer = of_code(true);
  EXPECT_EQ(tokenizer->vocabulary_size(), 360);
  EXPECT_EQ(count_pieces(tokenizer->serialised()), 360);
  const auto kept = [&](std::string_view text) { return tokenizer->decode(tokenizer->encode(text)) == text; };
  for (const std::string_view text :
       {std::string_view(kCode), std::string_view(), std::string_view(" "), std::string_view("\n"),
        std::string_view("\n\n \n"), std::string_view("  two  blanks  "), std::string_view("\t\ttabs\t \r\n\f\v"),
        std::string_view("no end"), std::string_view("nul \0 inside", 12),
        std::string_view("\xe2\x96\x81 \xe2\x96\x81x"), std::string_view("<s></s><unk><0x0A><0x41> \xe2\x81\x87"),
        std::string_view("\xef\xbb\xbf"
                         "BOM \xc2\xa0 \xe3\x80\x80"),
        std::string_view("\xe2\x96\x85 e\xcc\x81 \xef\xac\x81 \xc2\xbd")}) {
    EXPECT_TRUE(kept(text)) << text;
  }
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text = random_unicode(random, random.below(40));
    for (std::uint64_t i = random.below(30); i > 0; --i) {
      constexpr std::string_view kPieces[] = {" ", "  ", "\n", "\t", "\xe2\x96\x81", "for (", "::", "12", "<s>"};
      std::size_t place = random.below(text.size() + 1);
      while (place < text.size() && continues_character(text[place])) {
        ++place;
      }
      text.insert(place, kPieces[random.below(std::size(kPieces))]);
    }
    ASSERT_TRUE(kept(text)) << text;
  }
}

TEST_F(SentencePieceTest, KeepsWhitespaceAbsentFromTheTrainingText) {
  for (const std::string_view text : {std::string_view("abc\nabcabc\n"), std::string_view("\t\n\t\t\n")}) {
    const auto tokenizer = train({.vocabulary_size = text[0] == 'a' ? 265 : 260, .keep_whitespace = true}, text);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("  a b \xe2\x96\x81\n c")), "  a b \xe2\x96\x81\n c");
  }
}

TEST_F(SentencePieceTest, NormalisesLinesUnlessToldToKeepThem) {
  const auto tokenizer = of_code(false);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("  two  blanks \n\n\tline  \xef\xac\x81ne\n")),
            "two blanks\n\nline fine\n");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("unseen \xe2\x82\xac and\n")), "unseen \xe2\x82\xac and\n");
}

TEST_F(SentencePieceTest, ALineEndIsOneId) {
  for (const bool keep : {true, false}) {
    const auto tokenizer = of_code(keep);
    const Ids end = tokenizer->encode("\n");
    ASSERT_EQ(end.size(), 1U);
    EXPECT_EQ(tokenizer->decode(end), "\n");
    const Ids ids = tokenizer->encode("a\n\nb\n");
    EXPECT_EQ(std::count(ids.begin(), ids.end(), end[0]), 3);
  }
}

TEST_F(SentencePieceTest, DigitsStandAlone) {
  const std::string text = repeated("2024 2024 and 2024\n", 200);
  const auto longest = [&](bool split) {
    const auto tokenizer = train({.vocabulary_size = 270, .keep_whitespace = true, .split_digits = split}, text);
    return tokenizer->encode("2024").size();
  };
  EXPECT_EQ(longest(true), 4U);
  EXPECT_LT(longest(false), 4U);
}

TEST_F(SentencePieceTest, TheSameTextGivesTheSameModel) {
  const auto first = of_code(true), second = of_code(true);
  EXPECT_EQ(first->serialised(), second->serialised());
  EXPECT_EQ(first->name(), second->name());
  EXPECT_NE(first->name(), of_code(false)->name());
  EXPECT_TRUE(first->name().starts_with("sentencepiece-360-"));
}

TEST_F(SentencePieceTest, BlocksAndThreadsDoNotChangeTheResult) {
  const auto tokenizer = of_code(true);
  const std::string text = repeated(kCode, 3000);
  const Ids whole = tokenizer->encode(text);
  Ids by_lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    tokenizer->encode(std::string_view(text).substr(at, end - at), by_lines);
    at = end;
  }
  EXPECT_EQ(by_lines, whole);
  std::vector<Ids> results(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& result : results) {
      threads.emplace_back([&] { tokenizer->encode(text, result); });
    }
  }
  for (const Ids& result : results) {
    EXPECT_EQ(result, whole);
  }
}

TEST_F(SentencePieceTest, VeryLongLines) {
  const auto tokenizer = of_code(true);
  std::string line = "x";
  Random random(2);
  while (line.size() < 300000) {
    line += random.below(50) == 0 ? "\xe2\x82\xac" : random.below(7) == 0 ? " value" : "x";
  }
  line += "x";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(line)), line);
  const std::string broken(200000, '\x80');  // invalid UTF-8 that cannot be cut; encoding must still end
  EXPECT_FALSE(tokenizer->encode(broken).empty());
  const auto normalising = of_code(false);
  EXPECT_EQ(normalising->decode(normalising->encode(line)), line);
}

TEST_F(SentencePieceTest, NamesTheNumberOfAvailablePieces) {
  const auto refusal = [&](std::int64_t size, std::string_view text) {
    return user_error_of([&] { train({.vocabulary_size = size, .keep_whitespace = true}, text); });
  };
  const std::string most = refusal(5000, "hello world\nhello there\n");
  EXPECT_HAS(most, "tokenizer.vocabulary_size: must be at most ");
  const std::int64_t size = std::stoll(most.substr(most.find("most ") + 5));
  EXPECT_EQ(train({.vocabulary_size = size, .keep_whitespace = true}, "hello world\nhello there\n")->vocabulary_size(),
            size);
  const std::string least = refusal(100, "hello world\nhello there\n");
  EXPECT_HAS(least, "tokenizer.vocabulary_size: must be at least 268 ");
  EXPECT_EQ(train({.vocabulary_size = 268, .keep_whitespace = true}, "hello world\nhello there\n")->vocabulary_size(),
            268);
}

// SentencePiece aborts the process if an internal check fails, so no text may cause that.
TEST_F(SentencePieceTest, TrainsOnAnyText) {
  Random random(5);
  std::vector<std::string> texts = {"\n\n\n",
                                    " ",
                                    "\t",
                                    "\xe2\x80\x8b\n",
                                    "\xe2\x96\x81",
                                    "\xe2\x96\x85",
                                    "<s>",
                                    "<unk>\n<0x20>",
                                    std::string(20000, 'a'),
                                    "\r\r\n",
                                    "\xef\xbf\xbd"};
  for (int i = 0; i < 40; ++i) {
    texts.push_back(random_unicode(random, 1 + random.below(60)) + (i % 2 == 0 ? "\n\t a" : ""));
  }
  for (const std::string& text : texts) {
    for (const bool keep : {true, false}) {
      try {
        const auto tokenizer = train({.vocabulary_size = 300, .keep_whitespace = keep}, text);
        EXPECT_TRUE(!keep || tokenizer->decode(tokenizer->encode(text)) == text);
      } catch (const UserError& error) {
        EXPECT_HAS(std::string(error.what()), "tokenizer");
      }
    }
  }
}

// Serialise a varint, and a field of bytes, of a protocol buffer message.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  return bytes + static_cast<char>(value);
}
std::string field(std::uint64_t number, std::string_view bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

// A normalisation table that changes "A" to "a". From the root, unit 0, byte 0x41 leads to unit 0x41. The value of that
// unit is unit 0x40, which holds an offset into the strings.
class Table {
 public:
  Table() { units[0x41] = 0x41 | kHasLeaf | 1U << 10, units[0x40] = kIsValue; }

  // Returns the settings of a model with this table.
  std::string operator()(std::uint64_t normalizer) const {
    const auto* bytes = reinterpret_cast<const char*>(units.data());
    return field(normalizer, field(2, std::string("\0\4\0\0", 4) + std::string(bytes, 4 * units.size()) + strings));
  }

  static constexpr std::uint32_t kHasLeaf = 1U << 8, kIsValue = 1U << 31;
  std::vector<std::uint32_t> units = std::vector<std::uint32_t>(256, 0);
  std::string strings = std::string("a\0", 2);
};

TEST_F(SentencePieceTest, TablesThatPointOutsideThemselvesAreRefused) {
  const std::string model = of_code(true)->serialised();
  const auto takes = [&](const Table& table) {
    for (const std::uint64_t normalizer : {3, 5}) {
      EXPECT_EQ(is_safe_model(model + table(normalizer)), is_safe_model(table(3))) << normalizer;
    }
    return is_safe_model(table(3));
  };
  EXPECT_TRUE(takes(Table()));
  const auto mapping = restore_tokenizer(TokenizerKind::sentencepiece, model + Table()(3), "model");
  EXPECT_EQ(mapping->encode("vAlue"), mapping->encode("value"));
  const auto changed = [&](std::size_t unit, std::uint32_t to) {
    Table table;
    table.units[unit] = to;
    return takes(table);
  };
  EXPECT_FALSE(changed(0, 0x3d00U << 10));                    // unit 0x3d does not exist
  EXPECT_FALSE(changed(0, Table::kIsValue | 0x3d00U << 10));  // a search starts at the root even if it is a value
  EXPECT_TRUE(changed(7, Table::kIsValue | 0x3d00U << 10));   // no search reaches any other value
  EXPECT_FALSE(changed(7, 1U << 9 | 1U << 10));               // the offset is in steps of 256
  EXPECT_TRUE(changed(0x40, Table::kIsValue | 1));            // offset of the empty string
  EXPECT_FALSE(changed(0x40, Table::kIsValue | 2));           // offset beyond the strings
  Table endless;
  endless.strings = "a";
  EXPECT_FALSE(takes(endless));
  Table short_by_one;
  short_by_one.units.pop_back();
  EXPECT_FALSE(takes(short_by_one));
}

TEST_F(SentencePieceTest, APieceWithoutTextIsRefused) {
  const std::string unknown = field(1, field(1, "<unk>") + "\x18\x02");  // type 2 is the unknown piece
  const auto with = [&](std::string_view piece) {
    return restore_tokenizer(TokenizerKind::sentencepiece, unknown + field(1, field(1, piece)), "the model");
  };
  EXPECT_EQ(with("/s>")->vocabulary_size(), 2);
  EXPECT_EQ(user_error_of([&] { with(std::string_view("\0/s>", 4)); }), "the model: not a SentencePiece model");
}

class SentencePieceFuzz : public SentencePieceTest {};

TEST_F(SentencePieceFuzz, Models) {
  const std::string model = train({.vocabulary_size = 268, .keep_whitespace = true}, "hello world\nhello there\n")
                                ->serialised(),
                    table = Table()(3);
  const fuzz::Material material{
      .good = {model, model + table, model + Table()(5)},
      .dictionary = {table, field(1, field(1, "x")), field(3, ""), varint(~std::uint64_t{0}), varint(1U << 31),
                     std::string("\0\4\0\0", 4), "\xff\xff\xff\x7f", std::string("\0\1\0\x80", 4), "\x0a", "\x12"}};
  fuzz::against(material, 1000, [](const std::string& input) {
    const auto tokenizer = restore_tokenizer(TokenizerKind::sentencepiece, input, "model");
    EXPECT_TRUE(is_safe_model(input));
    EXPECT_EQ(count_pieces(input), tokenizer->vocabulary_size());
    const Ids ids = tokenizer->encode("hello A\xe2\x96\x81 \xef\xac\x81 \xe2\x82\xac e\xcc\x81\n\t there\n");
    for (const std::int32_t id : ids) {
      EXPECT_TRUE(id >= 0 && id < tokenizer->vocabulary_size()) << id;
    }
    tokenizer->decode(ids);
    to_tokenizer_json(*tokenizer);
    const auto whole = restore_tokenizer(TokenizerKind::sentencepiece, serialised_from_file(input), "model");
    whole->decode(whole->encode("hello A\xe2\x96\x81 \xef\xac\x81 \xe2\x82\xac e\xcc\x81\n\t there\n"));
    to_tokenizer_json(*whole, {.names = {"<s>"}, .in_front = {std::max(whole->id_of("<s>"), 0)}});
  });
}

TEST(LineSample, IsBoundedEvenAndTheSameEveryTime) {
  const auto sample = [](std::size_t n, std::size_t limit) {
    LineSample lines(limit);
    for (std::size_t i = 0; i < n; ++i) {
      lines.offer(fmt::format("{:09}", i));
    }
    return lines.take();
  };
  EXPECT_EQ(sample(100, 1000).size(), 100U);  // all lines, as long as they fit
  const std::vector<std::string> some = sample(100000, 90000);
  EXPECT_LE(some.size(), 10000U);
  EXPECT_GT(some.size(), 4000U);
  EXPECT_EQ(some, sample(100000, 90000));
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  for (int tenth = 0; tenth < 10; ++tenth) {
    const auto in_tenth = std::count_if(some.begin(), some.end(),
                                        [&](const std::string& line) { return std::stoi(line) / 10000 == tenth; });
    EXPECT_NEAR(static_cast<double>(in_tenth), static_cast<double>(some.size()) / 10.0, 150.0);
  }
}

}  // namespace headroom::tokenizers::sentencepiece_test
