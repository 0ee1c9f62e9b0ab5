// Settings of a run that are probably mistakes.
#pragma once

#include "headroom/config/config.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::train {

// Throws UserError naming a file of data.train or data.validation that does not exist.
void require_data_files(const config::DataOptions& data);

// Logs a warning for keys without effect, data that is not named, and validation on training data. `tokenizer` is the
// run's; null if its task reads no text.
void log_warnings(const config::Config& config, const tokenizers::Tokenizer* tokenizer);

}  // namespace headroom::train
