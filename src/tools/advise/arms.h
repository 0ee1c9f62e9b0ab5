// What is tried against each other in each stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "advise.h"

namespace headroom::compare {

// The config's rate times powers of two, from a quarter to sixteen times; ascending.
std::vector<Arm> learning_rate_arms(const config::Config& config);

// The config with a tokenizer of this size.
config::Config with_vocabulary(config::Config config, std::int64_t size);
std::vector<Arm> vocabulary_arms(const config::Config& config, const std::vector<std::int64_t>& sizes);

// The config's own attention and that of each variant at the config's number of parameters, each with half, once and
// twice the learning rate. Throws UserError, naming the variant, where there is none, or none of this size.
std::vector<Arm> variant_arms(const config::Config& config, const std::vector<std::string>& variants);

// The config's own heads, then others: of experts, what the papers try; else half, a quarter and twice as many, all at
// the config's number of parameters. What cannot be matched is left out.
std::vector<Arm> head_arms(const config::Config& config);

}  // namespace headroom::compare
