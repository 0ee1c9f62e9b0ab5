// The text that a trained model reads, as tokens.
#pragma once

#include <memory>

#include "data/tokens/token_file.h"
#include "training/tasks/task.h"

namespace headroom::tasks {

// What a model of text is to be evaluated on, in its tokenizer's tokens: the request's files or, where there are none,
// the config's validation data. Throws UserError, also for a prepared token file of another tokenizer.
std::shared_ptr<const data::TokenFile> open_evaluation_text(const EvaluationRequest& request);

}  // namespace headroom::tasks
