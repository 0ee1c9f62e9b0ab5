// What operators and configs both know: the implementations of an operator, and the chunks of linear attention.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace headroom {

// reference: plain tensor operations. fused: throws UserError with the reason if it does not support the arguments.
// automatic: fused if it does, else reference.
enum class Implementation { automatic, reference, fused };

constexpr std::pair<Implementation, std::string_view> kImplementationNames[] = {
    {Implementation::automatic, "automatic"},
    {Implementation::reference, "reference"},
    {Implementation::fused, "fused"}};

// Queries of causal linear attention are processed in chunks of this length: within a chunk queries and keys are
// compared directly, and earlier keys contribute through the state. The operator computes by it, and costs are counted
// by it.
constexpr std::int64_t kLinearChunk = 64;

}  // namespace headroom
