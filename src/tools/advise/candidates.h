// The candidates of each stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "advise.h"

namespace headroom::advise {

// The config's learning rate times powers of two, from a quarter to sixteen; ascending.
std::vector<Candidate> learning_rate_candidates(const config::Config& config);

// The config with a tokenizer of this size.
config::Config with_vocabulary(config::Config config, std::int64_t size);
std::vector<Candidate> vocabulary_candidates(const config::Config& config, const std::vector<std::int64_t>& sizes);

// The config's own attention and each variant, matched to the config's number of parameters, each with half, once and
// twice the learning rate. Empty if no variant differs from the config. Throws UserError naming a variant that does not
// exist or cannot be matched.
std::vector<Candidate> variant_candidates(const config::Config& config, const std::vector<std::string>& variants);

// The config's own heads, then others, matched to its number of parameters: with experts, what the papers try; else
// half, a quarter and twice as many heads. Those that cannot be matched are left out.
std::vector<Candidate> head_candidates(const config::Config& config);

}  // namespace headroom::advise
