// Sentences and tables of the advice.
#include <gtest/gtest.h>

#include "tools/advise/findings.h"

namespace headroom::advise {
namespace advice_words_test {

// A candidate measured at 100 tokens per second, whose pilot runs trained at `speeds`.
Candidate candidate_of(const char* name, std::int64_t parameters, const std::vector<double>& speeds) {
  Candidate candidate{.name = name, .step_seconds = 0.1, .parameters = parameters};
  candidate.config.train.batch_size = 1;
  candidate.config.model.context_length = 10;
  for (const double speed : speeds) {
    Round& round = candidate.rounds.emplace_back(Round{.steps = 10, .scores = {2.5}});
    round.trained.emplace_back().result.tokens_per_second = speed;
  }
  return candidate;
}

std::vector<std::string> sentences_of(const std::vector<double>& speeds) {
  Advice advice{.tokens_per_second = 100.0, .tokens = 1e3};
  advice.stages.push_back({.name = "learning_rate",
                           .title = "Learning rate",
                           .candidates = {candidate_of("0.001", 1000, {90.0}), candidate_of("0.002", 1000, speeds)}});
  return advice_sentences(advice, {.rate = 100.0, .text_tokens = 1e4, .macs = 100.0});
}

TEST(AdviceWords, SayWhetherTheMachineWasBusy) {
  for (const std::string& sentence : sentences_of({95.0, 85.0})) {
    EXPECT_FALSE(sentence.starts_with("Noise: ")) << sentence;
  }
  const std::string last = sentences_of({95.0, 40.0}).back();
  EXPECT_TRUE(last.starts_with("Noise: pilot runs ran at 40 to 95% of ")) << last;
}

TEST(AdviceWords, TablesShowHowArmsDiffer) {
  Stage stage{.title = "Vocabulary",
              .candidates = {candidate_of("500", 1000, {90.0}), candidate_of("1000", 2000, {90.0, 90.0})}};
  EXPECT_EQ(compare::text_of(table_of(stage)),
            "                         round 1   round 2\n"
            "Vocabulary  parameters  10 steps  10 steps\n"
            "500             1.00 k     2.500            taken\n"
            "1000            2.00 k     2.500     2.500\n");
  EXPECT_NE(compare::html_of(table_of(stage)).find("<td>1.00 k</td><td class='best'>2.500</td>"), std::string::npos);
  stage.candidates[0].step_seconds = 0.2;
  stage.candidates[0].parameters = 2000;
  EXPECT_TRUE(compare::text_of(table_of(stage)).find("500               50     2.500") != std::string::npos)
      << compare::text_of(table_of(stage));
}

}  // namespace advice_words_test
}  // namespace headroom::advise
