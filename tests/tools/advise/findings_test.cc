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

TEST(AdviceWords, SayWhereTheMachineWasNotQuiet) {
  for (const std::string& sentence : sentences_of({95.0, 85.0})) {
    EXPECT_FALSE(sentence.starts_with("Noise: ")) << sentence;
  }
  const std::string last = sentences_of({95.0, 40.0}).back();
  EXPECT_TRUE(last.starts_with("Noise: pilot runs ran at 40 to 95% of ")) << last;
}

std::vector<std::string> names(const StageTable& table) {
  std::vector<std::string> all;
  for (const StageColumn& column : table.head) {
    all.push_back(column.name);
  }
  return all;
}

TEST(AdviceWords, TablesShowInWhatArmsDiffer) {
  Stage stage{.title = "Vocabulary",
              .candidates = {candidate_of("500", 1000, {90.0}), candidate_of("1000", 2000, {90.0, 90.0})}};
  StageTable table = table_of(stage);
  EXPECT_EQ(names(table), (std::vector<std::string>{"Vocabulary", "parameters", "round 1", "round 2"}));
  EXPECT_EQ(table.head[2].note, "10 steps");
  EXPECT_EQ(table.rows[0].cells, (std::vector<std::string>{"500", "1.00 k", "2.500", ""}));
  EXPECT_TRUE(table.rows[0].taken);
  stage.candidates[0].step_seconds = 0.2;
  stage.candidates[0].parameters = 2000;
  table = table_of(stage);
  EXPECT_EQ(names(table), (std::vector<std::string>{"Vocabulary", "tokens/s", "round 1", "round 2"}));
  EXPECT_EQ(table.rows[0].cells[1], "50");
}

}  // namespace advice_words_test
}  // namespace headroom::advise
