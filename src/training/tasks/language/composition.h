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
  std::string where;  // the start of error messages
  Prefix prefix = {};
};

// The row's answers as sequences to score, in order: one sequence for those that fit the model's context, then one for
// each further answer, so that each has as much context as possible.
std::vector<Sequence> answers_of(const data::CompositionRow& row, const AnswersReader& reader);

// language_modelling() with two more figures. "accuracy": the fraction of answers that greedy decoding would generate,
// each given everything before it in its row; "answer_perplexity": exp(-mean log-probability of an answer). Both are
// over the first validation rows: at most 256 and, with EvaluateOptions::most_tokens, at most as many as have that many
// tokens together, but at least one. Text from files has no rows, so these figures are missing.
const Task& composition();

}  // namespace headroom::tasks
