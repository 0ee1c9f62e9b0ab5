// Implementations of an operator, named as in configs.
#pragma once

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

}  // namespace headroom
