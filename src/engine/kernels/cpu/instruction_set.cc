// HEADROOM_SIMD=avx2|baseline holds the vector loops to an older instruction set than the CPU's, so that they can be
// tested on one machine.
#include <hwy/targets.h>

#include <cstdlib>
#include <string_view>

namespace headroom::kernels {
namespace {

[[maybe_unused]] const bool kChosen = [] {
  const char* wish = std::getenv("HEADROOM_SIMD");
  const std::string_view name = wish == nullptr ? "" : wish;
#if HWY_ARCH_X86
  // A target's bit is below those of the targets that it is better than.
  if (name == "avx2") {
    hwy::DisableTargets(HWY_AVX2 - 1);
  }
#endif
  if (name == "baseline") {
    hwy::DisableTargets(HWY_STATIC_TARGET - 1);
  }
  return true;
}();

}  // namespace
}  // namespace headroom::kernels
