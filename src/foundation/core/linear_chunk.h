// How causal linear attention takes its queries: the operator runs by it, and its multiply-accumulates are counted by
// it.
#pragma once

#include <cstdint>

namespace headroom {

// Queries and keys that are compared directly; what came before their chunk reaches them through the state.
constexpr std::int64_t kLinearChunk = 64;

}  // namespace headroom
