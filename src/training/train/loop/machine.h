// Whether this machine can do a run, as far as that can be known before it begins.
#pragma once

#include "headroom/config/config.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::train {

// Throws UserError where train.device does not exist, or where the system would end the run for lack of memory.
void check_machine(const config::Config& config);

// Of a config that leaves its vocabulary to the tokenizer, the one that a run with this tokenizer has, checked again on
// this machine; any other unchanged. `tokenizer`: null where the task reads no text.
config::Config with_vocabulary_of(config::Config config, const tokenizers::Tokenizer* tokenizer);

}  // namespace headroom::train
