// Where a run begins that has no past: with the parameters of a checkpoint (train.start_from).
#pragma once

#include "headroom/config/config.h"

namespace headroom::train {

// With train.start_from, the config of a run that begins there: keys of `model` that are not given are those of the
// checkpoint, `tokenizer` describes the checkpoint's, and train.start_sha256 is the hash of its parameters. Without,
// the config as it is. Throws UserError naming the key and both values where the checkpoint is of another model or
// tokenizer, or has other parameters than train.start_sha256 says.
config::Config with_start(config::Config config);

}  // namespace headroom::train
