// Definitions shared by operators and configs: operator implementations, and the chunk length of linear attention.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace headroom {

// reference: plain tensor operations. fused: throws UserError with the reason if it does not support the arguments.
// automatic: fused if it supports the arguments, else reference.
enum class Implementation { automatic, reference, fused };

constexpr std::pair<Implementation, std::string_view> kImplementationNames[] = {
    {Implementation::automatic, "automatic"},
    {Implementation::reference, "reference"},
    {Implementation::fused, "fused"}};

// Causal linear attention processes queries in chunks of this length. Within a chunk, queries and keys are compared
// directly; earlier keys contribute through the state. Shared by the operator and the cost model.
constexpr std::int64_t kLinearChunk = 64;

}  // namespace headroom
