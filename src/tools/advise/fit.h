// Chooses the model size, batch size and vocabulary size that fit a budget, by rules on measured or counted figures.
// Trains nothing. Also
// lists the candidates of each stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "advise.h"
#include "headroom/config/config.h"

namespace headroom::advise {

// Compute-optimal tokens per active parameter if text is unlimited (Hoffmann et al.: Training Compute-Optimal Large
// Language Models, 2022).
inline constexpr double kTokensPerParameter = 20.0;

// R* of Muennighoff et al., Scaling Data-Constrained Language Models, 2023: the number of repeated epochs after which
// another epoch is nearly worthless. Also the maximum advised, because small models would memorise the text.
inline constexpr double kEpochDecay = 15.4;
inline constexpr double kMostEpochs = kEpochDecay;
// Up to this number of epochs, repeated text is nearly as good as new text (same paper). Beyond it, the model gets
// dropout.
inline constexpr double kEpochsWithoutDropout = 4.0;
inline constexpr double kDropout = 0.2;

// Returns the number of tokens of new text worth as much as D = `tokens` of training on a repeated text of U =
// `text_tokens`: U + U R (1 - exp(-(D / U - 1) / R)) with R = kEpochDecay (same paper).
double effective_tokens(double tokens, double text_tokens);

// A batch size is fast enough if it loses at most this share of the fastest one's tokens per second.
inline constexpr double kLostToBatch = 0.2;

// The share of the budget for the run's training steps. The rest is for pilot runs, validations and checkpoints.
inline constexpr double kRunShare = 0.88;

// Executed multiply-accumulates per token of a forward pass, about the number of active parameters.
double forward_macs(const config::Config& config);

// Returns `config` with `factor` times its widths and sqrt(factor) times its layers, rounded to valid values; nullopt
// if there is no such model.
std::optional<config::Config> scaled(const config::Config& config, double factor);

// The factors that scaled() is tried with, ascending.
const std::vector<double>& size_factors();

// Returns the index of the best model size for `macs` of training (three times forward per token) on a text of
// `text_tokens`. `forward` holds the forward multiply-accumulates N per token of each model. Minimises N^-a + (D' /
// kTokensPerParameter)^-a, which is proportional to the reducible loss, with a = 0.35 and D' the effective tokens (both
// papers above).
std::size_t best_size(const std::vector<double>& forward, double macs, double text_tokens);

// Returns the index of the smallest batch that is fast enough (kLostToBatch); batches are in ascending order.
std::size_t best_batch(const std::vector<double>& tokens_per_second);

// Returns up to four vocabulary sizes, ascending, each twice the previous one. The largest is at most 2 * `own` and
// small enough for the text to contain examples of every token.
std::vector<std::int64_t> vocabulary_sizes(std::int64_t own, double text_bytes);

// Rounds down to two significant digits: 1234 becomes 1200. Numbers below 100 are rounded down to integers.
std::int64_t rounded_down(double number);

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
