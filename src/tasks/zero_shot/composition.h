// The composition tasks' rows as a test without training.
#pragma once

#include "headroom/tasks/zero_shot.h"

namespace headroom::tasks::zero_shot {

// Rows {"task_id": "task12", "texts": "..."} with the answers in brackets. An answer is right where greedy decoding
// would write it. Subsets are "block/pattern".
ZeroShotResult evaluate_composition(const models::LanguageModel& model, const data::Tokenizer& tokenizer,
                                    const ZeroShotRequest& request);

}  // namespace headroom::tasks::zero_shot
