// The task of models that are trained on synthetic sequences (data/synthetic/sequences.h).
#pragma once

#include "training/tasks/task.h"

namespace headroom::tasks {

// Figures: "loss" of the answers; "accuracy", the fraction of answers that are the likeliest token; "chance", the
// accuracy of guessing. Validation covers data.generated_validation rows (default 512) that training does not see.
const Task& synthetic_sequences();

}  // namespace headroom::tasks
