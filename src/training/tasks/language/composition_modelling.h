// Language modelling on DCFormer's synthetic composition tasks (data/synthetic/composition_task.h), evaluated by the
// accuracy of the answers.
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
  std::string where;  // errors begin with it
  Beginning beginning = {};
};

// The row's answers, to be scored in their order: in one sequence as far as the model's context reaches, a sequence
// each beyond that, so that each has all the context that there is room for.
std::vector<Sequence> answers_of(const data::CompositionRow& row, const AnswersReader& reader);

// Trains and reads its validation text as language_modelling() does, with the same figures; besides, "accuracy": the
// share of the answers that greedy decoding would write, each after all that precedes it in its row, and
// "answer_perplexity": exp(-mean log-probability of an answer). Both over the first validation rows, at most 256 of
// them and, with EvaluateOptions::most_tokens, as many as have so many tokens together (one at least). Text from files
// has no rows: there it is language modelling alone.
const Task& composition_modelling();

}  // namespace headroom::tasks
