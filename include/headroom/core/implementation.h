// Every operator exists twice: a reference in plain tensor operations and a fused version.
#pragma once

namespace headroom {

// automatic: fused where it applies, else the reference. fused: throws MisuseError with the reason where it does not.
enum class Implementation { automatic, reference, fused };

}  // namespace headroom
