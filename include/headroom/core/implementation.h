// Definitions that operators and configs share: operator implementations, and the chunk length of linear attention.
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

// Queries of causal linear attention are processed in chunks of this length: within a chunk queries and keys are
// compared directly, and earlier keys contribute through the state. The operator and the cost model
// both use this length.
constexpr std::int64_t kLinearChunk = 64;

}  // namespace headroom
