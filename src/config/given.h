// Which keys a config was given, and what follows from those that it was not.
#pragma once

#include "headroom/config/config.h"

namespace headroom::config::detail {

// Where `--set` gave a key.
inline constexpr const char* kOverride = "--set";

// Of model.vocabulary_size and tokenizer.vocabulary_size the one that is given decides the other.
void decide_vocabulary(Config& config, const GivenKeys& given);

// A sequence of a vision model is the patches of a picture, where model.context_length is not given.
void decide_context(ModelOptions& model, const GivenKeys& given);

}  // namespace headroom::config::detail
