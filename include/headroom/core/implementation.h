// Every operator exists twice: a reference in plain tensor operations and a fused version.
#pragma once

#include <string_view>
#include <utility>

namespace headroom {

// automatic: fused where it applies, else the reference. fused: throws UserError with the reason where it does not.
enum class Implementation { automatic, reference, fused };

constexpr std::pair<Implementation, std::string_view> kImplementationNames[] = {
    {Implementation::automatic, "automatic"},
    {Implementation::reference, "reference"},
    {Implementation::fused, "fused"}};

}  // namespace headroom
