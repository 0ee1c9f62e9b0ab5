// What the commands cost, match and recipes print: JSON for scripts, aligned text for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "match.h"
#include "recipe_list.h"

namespace headroom::cost {

using NamedConfig = std::pair<std::string, config::Config>;

// {name, parameters, attention_macs, attention_memory, executed: {attention_macs, mlp_macs, head_macs, step_macs},
// decoding_cache_numbers (cache.h), step_memory: {parameters, gradients, moments, activations, total} (memory.h)}:
// paper accounting per layer and sequence, executed accounting of the whole model (cost.h), with a step of
// config.train.batch_size sequences.
Json cost_json(std::string_view name, const config::Config& config);
std::string cost_table(const std::vector<NamedConfig>& configs);

// Training in so many processes (processes.h), on devices that carry out `macs_per_second`.
struct Devices {
  std::vector<std::int64_t> processes;
  double macs_per_second = 1e14;
};
// [{processes, sums, rounds, imbalance, of_all_reduce, hiding_bandwidth, macs_per_second, ranks: [{numbers, memory:
// {parameters, gradients, moments, running_sums, staging, activations, total}, sent: {gradients, parameters}, received:
// {gradients, parameters}}]}]: bytes; an entry for each number of processes.
Json processes_json(const config::Config& config, const Devices& devices);
std::string processes_table(const std::vector<NamedConfig>& configs, const Devices& devices);

// [{row, quantity, printed, computed, agrees, derivable, reason}]: one entry a printed figure; `reason` where there is
// something to say: why a figure is not derivable or does not agree.
Json paper_json(std::string_view paper);
std::string paper_table(std::string_view paper);

// {config (TOML text), by, parameters, target, attention_macs, target_parameters, target_attention_macs,
// candidates}; `target` is the target's count of what was matched.
Json match_json(const MatchResult& result);
// What was matched, and the candidates as a table; to be printed with the TOML.
std::string match_summary(const MatchResult& result);

// [{name, file, paper, table, row, about}]
Json recipes_json(const std::vector<Recipe>& recipes);
std::string recipes_table(const std::vector<Recipe>& recipes);

}  // namespace headroom::cost
