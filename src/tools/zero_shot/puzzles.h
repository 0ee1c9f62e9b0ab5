// Puzzles as texts whose answers are scored, and as a test without training, --task composition.
#pragma once

#include "headroom/tokenizers/tokenizer.h"
#include "training/tasks/language/composition.h"
#include "zero_shot.h"

namespace headroom::tasks::zero_shot {

// Rows {"task_id": "task12", "texts": "..."} with the answers in brackets. An answer is right where greedy decoding
// would write it. Subsets are "block/pattern".
ZeroShotResult evaluate_puzzles(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                const ZeroShotRequest& request);

}  // namespace headroom::tasks::zero_shot
