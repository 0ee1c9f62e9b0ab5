// Which keys a config was given, and what follows from those that it was not.
#pragma once

#include "headroom/config/config.h"

namespace headroom::config::detail {

// Of a place in GivenKeys: an option of the command line, no file.
bool is_option(std::string_view place);

// Of model.vocabulary_size and tokenizer.vocabulary_size the one that is given decides the other.
void decide_vocabulary(Config& config, const GivenKeys& given);

// A warm-up that a file asks for and that is longer than the steps an option asks for becomes as long as they are, with
// a remark.
void shorten_warmup(TrainOptions& train, const GivenKeys& given);

// A sequence of a vision model is the patches of a picture, where model.context_length is not given.
void decide_context(ModelOptions& model, const GivenKeys& given);

}  // namespace headroom::config::detail
