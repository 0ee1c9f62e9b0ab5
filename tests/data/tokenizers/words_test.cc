#include "data/tokenizers/bpe/model.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headroom::tokenizers {
namespace words_test {

using Words = std::vector<std::string>;

Words cut(WordPattern pattern, std::string_view text) {
  Words words;
  for (std::size_t at = 0; at < text.size(); at += words.back().size()) {
    words.emplace_back(text.substr(at, word_length(pattern, text, at)));
  }
  return words;
}

// The words that a regular expression library finds with the same patterns.
TEST(Words, AreThoseOfThePatterns) {
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
    EXPECT_EQ(cut(WordPattern::gpt2, one.text), one.gpt2);
    EXPECT_EQ(cut(WordPattern::llama3, one.text), one.llama3);
    EXPECT_EQ(cut(WordPattern::qwen2, one.text), one.qwen2);
  }
}

TEST(Words, EndBeforeBlanks) {
  EXPECT_TRUE(ends_word(WordPattern::gpt2, "a b", 1));
  EXPECT_TRUE(ends_word(WordPattern::gpt2, ".\nb", 1));
  EXPECT_FALSE(ends_word(WordPattern::llama3, ".\nb", 1));
  EXPECT_TRUE(ends_word(WordPattern::llama3, ". b", 1));
  EXPECT_TRUE(ends_word(WordPattern::llama3, "\303\251\n", 2));
  EXPECT_FALSE(ends_word(WordPattern::gpt2, "a b", 2));
  EXPECT_FALSE(ends_word(WordPattern::gpt2, "a  ", 2));
  EXPECT_FALSE(ends_word(WordPattern::gpt2, "\302\240 ", 2));
}

}  // namespace words_test
}  // namespace headroom::tokenizers
