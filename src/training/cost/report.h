// The output of the command cost: JSON documents and aligned tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "match.h"

namespace headroom::cost {

using NamedConfig = std::pair<std::string, config::Config>;

// {name, parameters, attention_macs, attention_memory, executed: {attention_macs, mlp_macs, head_macs, step_macs},
// decoding_cache_numbers, step_memory: {parameters, gradients, moments, activations, total} (step_memory())}. Paper
// accounting is per layer and sequence; executed accounting covers the whole model (cost.h), with
// config.whole_sequences() sequences per step.
Json cost_json(std::string_view name, const config::Config& config);
std::string cost_table(const std::vector<NamedConfig>& configs);

// The numbers of ranks to report (ranks.h), and the speed of each rank's device.
struct Devices {
  std::vector<std::int64_t> ranks;
  double macs_per_second = 1e14;
  bool sharded = false;  // sharded_cost()
};
// [{processes, sums, rounds, imbalance, of_all_reduce, hiding_bandwidth, macs_per_second, ranks: [{numbers, memory:
// {parameters, gradients, moments, running_sums, staging, activations, total}, sent: {gradients, parameters}, received:
// {gradients, parameters}}]}], in bytes, with one entry per number of ranks.
Json ranks_json(const config::Config& config, const Devices& devices);
std::string ranks_table(const std::vector<NamedConfig>& configs, const Devices& devices);

// [{row, quantity, printed, computed, agrees, derivable, reason}], with one entry per printed figure; `reason` is
// omitted if it is empty.
Json paper_json(std::string_view paper);
std::string paper_table(std::string_view paper);

// {config (TOML text), by, parameters, target, attention_macs, target_parameters, target_attention_macs,
// candidates}; `target` is the target's count of the matched quantity.
Json match_json(const MatchResult& result);
// Returns the matched counts and the candidates as tables, to be printed with the TOML.
std::string match_summary(const MatchResult& result);

}  // namespace headroom::cost
