#include "training/tasks/translation/scores.h"

#include <gtest/gtest.h>

#include <numeric>

#include "headroom/core/error.h"

namespace headroom::tasks::scores_test {

using Lines = std::vector<std::string>;

const Lines kTranslations = {"The cat sat on the mat.",
                             "He's 3.5 years old, isn't he?",
                             "It costs $1,000.50 (about €950) - not cheap!",
                             "Tom &amp; Mary said: \"Hello-world\"...",
                             "Das ist ein Über-Test, 10-mal.",
                             "a b",
                             "",
                             "Völlig andere Wörter hier"};
const Lines kReferences = {"The cat is on the mat.",
                           "He is 3.5 years old, isn't he?",
                           "It costs $1,000.50 (about €950), which is not cheap!",
                           "Tom & Mary said: \"Hello world\"...",
                           "Das ist ein Über-Test, 10-mal so gut.",
                           "a b c",
                           "nothing was said",
                           "Something else entirely"};

std::string joined(const std::vector<std::string>& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), std::string(),
                         [](const std::string& a, const std::string& b) { return a.empty() ? b : a + " " + b; });
}

double corpus_bleu(const Lines& translations, const Lines& references, const BleuOptions& options = {}) {
  return bleu_of(count_bleu(translations, references, options.tokens), options);
}

// Returns the precision in per cent.
double precision(const BleuCounts& counts, std::size_t n) {
  return 100.0 * static_cast<double>(counts.right[n - 1]) / static_cast<double>(counts.all[n - 1]);
}

// The expected values are from sacrebleu 2.6.0.
TEST(Bleu, EqualsSacrebleuWith13aTokens) {
  EXPECT_NEAR(corpus_bleu(kTranslations, kReferences), 59.54573977476419, 1e-9);
  const BleuCounts counts = count_bleu(kTranslations, kReferences, BleuTokens::mteval_13a);
  EXPECT_NEAR(precision(counts, 1), 84.90566037735849, 1e-9);
  EXPECT_NEAR(precision(counts, 2), 76.08695652173913, 1e-9);
  EXPECT_NEAR(precision(counts, 3), 66.66666666666667, 1e-9);
  EXPECT_NEAR(precision(counts, 4), 57.57575757575758, 1e-9);
  EXPECT_EQ(counts.tokens, 53);
  EXPECT_EQ(counts.reference_tokens, 62);
  EXPECT_NEAR(corpus_bleu({"the the the the"}, {"the cat"}), 15.97357760615681, 1e-9);  // smoothed twice
  EXPECT_NEAR(corpus_bleu({"a b c d"}, {"a b x d"}), 35.35533905932737, 1e-9);
}

TEST(Bleu, EqualsSacrebleuWithoutTokenisation) {
  const BleuOptions plain{.tokens = BleuTokens::blanks, .smooth = false};
  EXPECT_NEAR(corpus_bleu(kTranslations, kReferences, plain), 34.592489437915916, 1e-9);
  const BleuCounts counts = count_bleu(kTranslations, kReferences, plain.tokens);
  EXPECT_NEAR(precision(counts, 4), 25.0, 1e-9);
  EXPECT_EQ(counts.reference_tokens, 44);
  EXPECT_EQ(corpus_bleu({"a b c d"}, {"a b x d"}, plain), 0.0);  // no 3-gram is right
}

TEST(Bleu, PerfectAndHopelessTranslations) {
  EXPECT_NEAR(corpus_bleu(kReferences, kReferences), 100.0, 1e-9);
  EXPECT_EQ(corpus_bleu({"x"}, {"y"}), 0.0);
  EXPECT_EQ(corpus_bleu({""}, {"y"}), 0.0);
  EXPECT_EQ(corpus_bleu({"one two"}, {"one two three four five"}), 0.0);  // no 3-grams at all
  EXPECT_EQ(corpus_bleu({}, {}), 0.0);
  EXPECT_THROW(corpus_bleu({"a"}, {}), Error);
}

TEST(Bleu, TokensOfMteval13a) {
  const auto tokens = [](std::string_view text) { return joined(bleu_tokens(text, BleuTokens::mteval_13a)); };
  EXPECT_EQ(tokens("a.b,c 1.5 1,000 .5 5. x-y 3-4 4-x $1,000.50 &quot;q&quot; &amp;lt; <skipped>z ... ,, é. .é ü,1 1,ü "
                   "a\u00a0b\u2009c\u3000d a/b@c#d e'f `g`h [i]{j}|~k (l)*+m:n;o<p=q>r?s!t%u^v_w\\x"),
            "a . b , c 1.5 1,000 . 5 5 . x-y 3 - 4 4 - x $ 1,000.50 \" q \" < z . . . , , é . . é ü , 1 1 , ü a b c d "
            "a / b @ c # d e'f ` g ` h [ i ] { j } | ~ k ( l ) * + m : n ; o < p = q > r ? s ! t % u ^ v _ w \\ x");
  EXPECT_EQ(tokens(" lead  and trail \t"), "lead and trail");
  EXPECT_EQ(tokens("1.,2 .,. 5.-6 -7 7--8"), "1 . , 2 . , . 5 . -6 -7 7 - -8");
  EXPECT_EQ(tokens(""), "");
}

double chrf(const std::vector<std::string>& translations, const std::vector<std::string>& references) {
  return chrf_of(count_chrf(translations, references));
}

// The expected values are from sacrebleu 2.6.0.
TEST(Chrf, EqualsSacrebleu) {
  const std::vector<std::string> translations = {"the cat sat on the mat", "Das ist ein Über-Test", "日本語 の テスト",
                                                 "", "ab"};
  const std::vector<std::string> references = {"the cat  lay on\u00a0a mat.", "Dies ist ein Übertest!",
                                               "日本語のテストです", "nothing", "abc"};
  EXPECT_NEAR(chrf(translations, references), 46.40100205229939, 1e-9);
  EXPECT_NEAR(chrf({"abcdefgh"}, {"ab"}), 55.0, 1e-9) << "lengths that the reference has none of do not count";
}

TEST(Chrf, PerfectAndHopelessTranslations) {
  EXPECT_NEAR(chrf({"abc"}, {"abc"}), 100.0, 1e-9);
  EXPECT_EQ(chrf({"x"}, {"y"}), 0.0);
  EXPECT_EQ(chrf({""}, {"y"}), 0.0);
  EXPECT_EQ(chrf({"a"}, {""}), 0.0);
  EXPECT_EQ(chrf({}, {}), 0.0);
  EXPECT_THROW(chrf({"a"}, {}), Error);
}

}  // namespace headroom::tasks::scores_test
