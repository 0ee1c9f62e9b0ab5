// The candidates of each stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "advise.h"

namespace headroom::advise {

// Returns candidates with the config's learning rate times powers of two, from 1/4 to 16, ascending.
std::vector<Candidate> learning_rate_candidates(const config::Config& config);

// Returns the config with this vocabulary size.
config::Config with_vocabulary(config::Config config, std::int64_t size);
std::vector<Candidate> vocabulary_candidates(const config::Config& config, const std::vector<std::int64_t>& sizes);

// Returns the config's own attention and each variant, matched to the config's number of parameters, each with 0.5, 1
// and 2 times the learning rate. Empty if no variant differs from the config. Throws UserError naming a variant that
// does not exist or cannot be matched.
std::vector<Candidate> variant_candidates(const config::Config& config, const std::vector<std::string>& variants);

// Returns the config's own number of heads, then others, matched to its number of parameters: with experts, the numbers
// used in the papers; otherwise 1/2, 1/4 and 2 times as many heads. Omits numbers that cannot be matched.
std::vector<Candidate> head_candidates(const config::Config& config);

}  // namespace headroom::advise
