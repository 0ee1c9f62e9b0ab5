// The task "composition": language modelling on DCFormer's synthetic tasks (data/synthetic/composition_task.h), with
// the accuracy of the answers.
#pragma once

#include <string>
#include <vector>

#include "data/synthetic/composition_task.h"
#include "headroom/config/config.h"
#include "headroom/tokenizers/tokenizer.h"
#include "scoring.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

struct AnswersReader {
  const tokenizers::Tokenizer& tokenizer;
  const config::ModelOptions& model;
  std::string where;  // prefix of error messages
  Prefix prefix = {};
};

// Returns the sequences that score the row's answers, in order: one sequence for all answers that fit the model's
// context, then one per further answer, so that each has as much context as possible.
std::vector<Sequence> answers_of(const data::CompositionRow& row, const AnswersReader& reader);

// language_modelling() with two more figures. "accuracy": the fraction of answers that greedy decoding would generate,
// given the preceding text of the row; "answer_perplexity": exp(-mean log-probability per answer). Both cover the first
// 256 validation rows or, if EvaluateOptions::most_tokens is set, those of them that are spread evenly and have at most
// that many tokens in total, but at least one row. Text from files has no rows, so these figures are missing for it.
const Task& composition();

}  // namespace headroom::tasks
