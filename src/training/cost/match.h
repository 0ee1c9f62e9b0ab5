// Matches a model to another in parameters or MACs, for fair comparisons.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/config/config.h"

namespace headroom::cost {

enum class MatchBy { parameters, macs };

// Numbers of heads and experts, and the widths with which they match the target.
struct Candidate {
  std::int64_t n_heads = 0, n_experts = 0, top_k = 0;
  std::int64_t d_head = 0, d_hidden = 0;
  std::int64_t parameters = 0, attention_macs = 0;  // paper accounting, per layer and sequence
};

struct MatchResult {
  config::Config config;  // the given config with matched widths (by MACs: and heads)
  MatchBy by = MatchBy::parameters;
  std::int64_t parameters = 0, target_parameters = 0;
  std::int64_t attention_macs = 0, target_attention_macs = 0;
  std::vector<Candidate> candidates;  // see match()
};

// Matches `config` to `target` by the procedure of the SwitchHead papers (SwitchHead draft, section 3; SwitchHead,
// sections 3 and 3.5).
//
// By parameters: n_heads, n_experts and top_k of `config` are kept. d_hidden starts at the target's if both have the
// same kind of MLP. d_head becomes the largest value (a multiple of 4 for experts and routed heads) with at most the
// target's parameters; then d_hidden grows (by 1; expert MLPs by 4) up to the target. The papers stop within 100k
// parameters of the target; the largest fitting d_hidden is that close for all their models.
//
// Heads with compositions (DCMHA) or mixtures of keys (Transformer-MGK) keep their width, as in their papers. Only
// d_hidden is adjusted; it may end up above or below the target's.
//
// Only training can decide which heads and experts to use: the papers set n_heads x n_experts to the target's n_heads
// and take the first of (n_heads, top_k) = (2,2), (2,3), (2,4), (4,2) that reaches the target's perplexity. If `config`
// has experts, `candidates` holds the matched model for each pair that the target allows.
//
// By MACs (attention, paper accounting): n_heads and d_head grow by the same factor up to the target's MACs: n_heads to
// the nearest integer, never fewer than given, then d_head to the largest fitting multiple of 4. The number of
// parameters also grows.
//
// In a model with model.layers, only widths that layers inherit from model.attention and model.mlp are matched; widths
// set by an entry stay unchanged. If one layer keeps its width, as above, all layers do.
//
// Throws UserError if even the smallest d_head exceeds the target, if every entry of model.layers sets a width that is
// to be matched, and for options without a cost formula.
MatchResult match(const config::Config& config, const config::Config& target, MatchBy by);

// Scales a model to the size that a given training budget suffices for.

// Compute-optimal training tokens per parameter (Hoffmann et al.: Training Compute-Optimal Large Language Models,
// 2022).
inline constexpr std::int64_t kTokensPerParameter = 20;

// Factors of scaled() that largest_within() tries.
inline constexpr double kSmallestFactor = 1.0 / 16.0, kLargestFactor = 16.0;

// Multiply-accumulates of training per token, as executed (executed_cost()).
double training_macs_per_token(const config::Config& config);

// Returns `config` with `factor` times its widths and sqrt(factor) times its layers, rounded; nullopt if no such model
// exists.
std::optional<config::Config> scaled(const config::Config& config, double factor);

// Returns the largest scaled() model that `macs` multiply-accumulates train on kTokensPerParameter tokens per
// parameter; nullopt if all models are too large, or if even the largest needs less.
std::optional<config::Config> largest_within(const config::Config& config, double macs);

}  // namespace headroom::cost
