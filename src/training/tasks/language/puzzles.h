// Language modelling on DCFormer's puzzles (data/puzzles.h; named "composition" by users), judged by their answers.
#pragma once

#include "training/tasks/task.h"

namespace headroom::tasks {

// Trains and reads its validation text as language_modelling() does, with the same figures; besides, "accuracy": the
// share of the answers that greedy decoding would write, each after all that precedes it in its row, and
// "answer_perplexity": exp(-mean log-probability of an answer). Both over the first validation rows, at most 256 of
// them and, with EvaluateOptions::most_tokens, as many as have so many tokens together (one at least). Text from files
// has no rows: there it is language modelling alone.
const Task& puzzles();

}  // namespace headroom::tasks
