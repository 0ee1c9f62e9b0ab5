// Puzzles as texts whose answers are scored, and as a test without training, --task composition.
#pragma once

#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "data/synthetic/puzzles.h"
#include "training/tasks/language/scoring.h"
#include "zero_shot.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tasks::zero_shot {

struct AnswersReader {
  const tokenizers::Tokenizer& tokenizer;
  const config::ModelOptions& model;
  std::string where;  // errors begin with it
  Beginning beginning = {};
};

// The row's answers, to be scored in their order: in one sequence as far as the model's context reaches, a sequence
// each beyond that, so that each has all the context that there is room for.
std::vector<Sequence> answers_of(const data::PuzzleRow& row, const AnswersReader& reader);

// Rows {"task_id": "task12", "texts": "..."} with the answers in brackets. An answer is right where greedy decoding
// would write it. Subsets are "block/pattern".
ZeroShotResult evaluate_puzzles(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                const ZeroShotRequest& request);

}  // namespace headroom::tasks::zero_shot
