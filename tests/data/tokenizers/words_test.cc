#include "data/tokenizers/bpe/word_pattern.h"

#include <fmt/ranges.h>

#include "data/tokenizers/patterns.h"
#include "folder_test.h"

namespace headroom::tokenizers::words_test {

using Words = std::vector<std::string>;

Words cut(const std::vector<std::string>& patterns, std::string_view text) {
  Words words;
  WordSplitter(patterns, "test").split(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

// A regular expression library finds the same words with these patterns.
TEST(Words, MatchThePatterns) {
  const struct {
    const char* text;
    Words gpt2, llama3, qwen2;
  } cases[] = {
      {"I'll've DON'T, we'Re '\305\277 ''s",
       {"I", "'ll", "'ve", " DON", "'", "T", ",", " we", "'", "Re", " '", "\305\277", " ''", "s"},
       {"I", "'ll", "'ve", " DON", "'T", ",", " we", "'Re", " '", "\305\277", " ''", "s"},
       {"I", "'ll", "'ve", " DON", "'T", ",", " we", "'Re", " '", "\305\277", " ''", "s"}},
      {"x = 12345.6789;\r\n\r\n\n  y\t\tz  ",
       {"x", " =", " 12345", ".", "6789", ";", "\r\n\r\n\n ", " y", "\t", "\t", "z", "  "},
       {"x", " =", " ", "123", "45", ".", "678", "9", ";\r\n\r\n\n", " ", " y", "\t", "\tz", "  "},
       {"x", " =", " ", "1", "2", "3", "4", "5", ".", "6", "7", "8", "9", ";\r\n\r\n\n", " ", " y", "\t", "\tz", "  "}},
      {"caf\303\251\314\201 \346\227\245\346\234\254\331\243\331\244\331\245 \302\275\342\205\247 "
       "\360\237\230\200!!\343\200\200\302\240 a",
       {"caf\303\251", "\314\201", " \346\227\245\346\234\254", "\331\243\331\244\331\245", " \302\275\342\205\247",
        " \360\237\230\200!!", "\343\200\200\302\240", " a"},
       {"caf\303\251", "\314\201", " \346\227\245\346\234\254", "\331\243\331\244\331\245", " ", "\302\275\342\205\247",
        " \360\237\230\200!!", "\343\200\200\302\240", " a"},
       {"caf\303\251", "\314\201", " \346\227\245\346\234\254", "\331\243", "\331\244", "\331\245", " ", "\302\275",
        "\342\205\247", " \360\237\230\200!!", "\343\200\200\302\240", " a"}},
      {"\341\240\216\342\200\213\013\302\205b -- \n ...\n\n#a (b) ",
       {"\341\240\216\342\200\213", "\013", "\302\205", "b", " --", " \n", " ...", "\n", "\n", "#", "a", " (", "b", ")",
        " "},
       {"\341\240\216\342\200\213", "\013", "\302\205b", " --", " \n", " ...\n\n", "#a", " (", "b", ")", " "},
       {"\341\240\216\342\200\213", "\013", "\302\205b", " --", " \n", " ...\n\n", "#a", " (", "b", ")", " "}},
      {"a'\305\277t'", {"a", "'", "\305\277t", "'"}, {"a", "'\305\277", "t", "'"}, {"a", "'\305\277", "t", "'"}}};
  for (const auto& one : cases) {
    EXPECT_EQ(cut(patterns::kGpt2, one.text), one.gpt2);
    EXPECT_EQ(cut(patterns::kLlama3, one.text), one.llama3);
    EXPECT_EQ(cut(patterns::kQwen2, one.text), one.qwen2);
  }
}

// The words come from the package `tokenizers` 0.23; | separates them.
TEST(Words, MatchAnySequenceOfPatterns) {
  const struct {
    const char *text, *o200k, *deepseek_v2, *deepseek_v3;
  } cases[] = {
      {"I'll've DON'T, McDonald'S HTML5Parser we'Re '\305\277 ''s/path//to\n/x",
       "I'll|'ve| DON'T|,| Mc|Donald'S| HTML|5|Parser| we'Re| '|\305\277| ''|s|/path|//|to|\n|/x",
       "I|'|ll|'|ve| DON|'|T|,| McDonald|'|S| HTML|5|Parser| we|'|Re| '|\305\277| ''|s|/|path|//|to|\n|/|x",
       "I|'ll|'ve| DON|'T|,| McDonald|'S| HTML|5|Parser| we|'Re| '|\305\277| ''|s|/path|//|to|\n|/x"},
      {"x = 12345.6789;\r\n\r\n\n  y\t\tz   \302\275\342\205\247\331\243\331\244\331\245 \n a//\n\n",
       "x| =| |123|45|.|678|9|;\r\n\r\n\n| | y|\t|\tz|  | |\302\275\342\205\247\331\243|\331\244\331\245| \n| a|//\n"
       "\n",
       "x| =| |1|2|3|4|5|.|6|7|8|9|;|\r|\n|\r|\n|\n| | y|\t|\tz|   |\302\275|\342\205\247|\331\243|\331\244|\331\245"
       "| |\n| a|//|\n|\n",
       "x| =| |123|45|.|678|9|;\r\n\r\n\n| | y|\t|\tz|   |\302\275\342\205\247\331\243|\331\244\331\245| \n| a|//\n"
       "\n"},
      {"caf\303\251 e\314\201cole \314\201a \346\227\245\346\234\254\350\252\236\343\203\206\343\202\271\343\203\210"
       "\355\225\234\352\265\255\354\226\264 \344\270\255\346\226\207\343\200\201\343\200\214\345\274\225\347\224"
       "\250\343\200\215\343\200\202 \307\205 \302\252\302\272 \341\232\240\341\232\242 \341\232\240  \n",
       "caf\303\251| e\314\201cole| \314\201a| \346\227\245\346\234\254\350\252\236\343\203\206\343\202\271\343\203"
       "\210\355\225\234\352\265\255\354\226\264| \344\270\255\346\226\207|\343\200\201\343\200\214|\345\274\225\347"
       "\224\250|\343\200\215\343\200\202| \307\205| \302\252\302\272| \341\232\240\341\232\242| \341\232\240|  \n",
       "caf|\303\251| e|\314\201|cole| \314\201|a| |\346\227\245\346\234\254\350\252\236\343\203\206\343\202\271\343"
       "\203\210\355\225\234\352\265\255\354\226\264| |\344\270\255\346\226\207|\343\200\201|\343\200\214\345\274"
       "\225\347\224\250\343\200\215|\343\200\202| \307\205| \302\252\302\272 |\341\232\240\341\232\242| |\341\232"
       "\240|  |\n",
       "caf\303\251| e\314\201cole| \314\201a| |\346\227\245\346\234\254\350\252\236\343\203\206\343\202\271\343\203"
       "\210|\355\225\234\352\265\255\354\226\264| |\344\270\255\346\226\207|\343\200\201\343\200\214|\345\274\225"
       "\347\224\250|\343\200\215\343\200\202| \307\205| \302\252\302\272| \341\232\240\341\232\242| \341\232\240|  "
       "\n"},
      {"\360\237\230\200\360\237\221\250\342\200\215\360\237\221\251 !!\343\200\200\302\240 a\341\240\216\342\200"
       "\213\013\302\205b -- \n ...\n\n#a (b)_c $5+\342\202\254 ",
       "\360\237\230\200\360\237\221\250\342\200\215\360\237\221\251| !!|\343\200\200\302\240| a|\341\240\216\342"
       "\200\213|\013|\302\205b| --| \n| ...\n\n|#a| (|b|)_|c| $|5|+\342\202\254| ",
       "\360\237\230\200\360\237\221\250|\342\200\215|\360\237\221\251| !!|\343\200\200|\302\240| a|\341\240\216\342"
       "\200\213|\013|\302\205b| --| |\n| ...|\n|\n|#|a| (|b|)_|c| $|5|+|\342\202\254| ",
       "\360\237\230\200\360\237\221\250|\342\200\215|\360\237\221\251| !!|\343\200\200\302\240| a|\341\240\216\342"
       "\200\213|\013|\302\205b| --| \n| ...\n\n|#a| (|b|)_|c| $|5|+\342\202\254| "},
      {"\316\251mega Stra\303\237e \320\226\320\227 \304\260 \312\274n \303\237\357\274\216\357\274\241\357\274\242"
       "\357\274\201 -foo @bar\\n   ",
       "\316\251mega| Stra\303\237e| \320\226\320\227| \304\260| \312\274n| \303\237|\357\274\216\357\274\241\357"
       "\274\242|\357\274\201| -|foo| @|bar|\\n|   ",
       "\316\251|mega| Stra|\303\237|e| \320\226\320\227| \304\260| \312\274|n| \303\237|\357\274\216|\357\274\241"
       "\357\274\242|\357\274\201| -|foo| @|bar|\\|n|   ",
       "\316\251mega| Stra\303\237e| \320\226\320\227| \304\260| \312\274n| \303\237|\357\274\216|\357\274\241\357"
       "\274\242|\357\274\201| -|foo| @|bar|\\n|   "}};
  for (const auto& one : cases) {
    EXPECT_EQ(fmt::format("{}", fmt::join(cut(patterns::kO200k, one.text), "|")), one.o200k);
    EXPECT_EQ(fmt::format("{}", fmt::join(cut(patterns::kDeepseekV2, one.text), "|")), one.deepseek_v2);
    EXPECT_EQ(fmt::format("{}", fmt::join(cut(patterns::kDeepseekV3, one.text), "|")), one.deepseek_v3);
  }
  EXPECT_EQ(cut({R"(\s+$)"}, "x \n \n y  "), (Words{"x", " \n ", "\n y", "  "})) << "$ is also before a line end";
  EXPECT_EQ(cut({R"([ab]+b|c{2}(?=d)|@[^\]a-]\/)"}, "aabccdccx"), (Words{"aab", "cc", "dccx"}));
  EXPECT_EQ(cut({"'(?i:kx|kyz|k)?'"}, "'\342\204\252yZ'b"), (Words{"'\342\204\252yZ'", "b"}));
  EXPECT_EQ(cut({R"(\s+$)"}, std::string(1 << 20, ' ') + "x").size(), 1U) << "in linear time";
}

TEST(Words, OtherSyntaxIsRefused) {
  const std::pair<const char*, const char*> cases[] = {{"a*?", "a repetition of a repetition"},
                                                       {"(ab)+", "a repeated group"},
                                                       {"(a|b)(c|d)", "a second group"},
                                                       {"((a|b)c)", "a second group"},
                                                       {R"(\w+)", "an escape"},
                                                       {R"(\p{Han})", "a property of characters"},
                                                       {"[[:alpha:]]", "the symbol ["},
                                                       {"[a&&b]", "the symbol &"},
                                                       {"a.b", "the symbol ."},
                                                       {"^a", "the symbol ^"},
                                                       {"(?<=a)b", "the symbol ?"},
                                                       {"(?!ab)c", "an assertion about more than one character"},
                                                       {"(a", "a ( without a )"},
                                                       {"a)", "a ) without a ("},
                                                       {"a|", "an empty alternative"},
                                                       {"[a", "an end"},
                                                       {"[z-a]", "an empty range"},
                                                       {"a{2,1}", "a { without limits"},
                                                       {"a*b*c*d", "more than two repetitions without a limit"},
                                                       {"(?i:\303\244)", "case folding beyond single letters"},
                                                       {"a*", "a pattern that can match nothing"}};
  for (const auto& [pattern, why] : cases) {
    EXPECT_HAS(user_error_of([&] { WordSplitter({pattern}, "x.json: pre_tokenizer"); }), why) << pattern;
  }
}

bool ends_word(const patterns::Patterns& patterns, std::string_view text, std::size_t at) {
  return WordSplitter(patterns, "test").ends_word(text, at);
}

TEST(Words, EndBeforeBlanks) {
  EXPECT_TRUE(ends_word(patterns::kGpt2, "a b", 1));
  EXPECT_TRUE(ends_word(patterns::kGpt2, ".\nb", 1));
  EXPECT_FALSE(ends_word(patterns::kLlama3, ".\nb", 1));
  EXPECT_TRUE(ends_word(patterns::kLlama3, ". b", 1));
  EXPECT_TRUE(ends_word(patterns::kLlama3, "\303\251\n", 2));
  EXPECT_FALSE(ends_word(patterns::kGpt2, "a b", 2));
  EXPECT_FALSE(ends_word(patterns::kGpt2, "a  ", 2));
  EXPECT_FALSE(ends_word(patterns::kGpt2, "\302\240 ", 2));
  EXPECT_TRUE(ends_word(patterns::kDeepseekV2, "a b", 1));
  EXPECT_TRUE(ends_word(patterns::kDeepseekV2, "\343\200\202\n", 3)) << "line ends are words";
  EXPECT_FALSE(ends_word(patterns::kDeepseekV2, "\327\220 ", 2)) << "Hebrew and blanks are one word";
}

}  // namespace headroom::tokenizers::words_test
