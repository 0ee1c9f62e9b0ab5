// The run-time part of Highway's dynamic dispatch. Distributions package it as a shared library only, which may be
// missing where the wheel is installed.
#include <hwy/targets.h>

#include <atomic>

namespace hwy {
namespace {

std::atomic<std::int64_t> disabled{0};

std::int64_t supported_by_cpu() {
  std::int64_t targets = HWY_STATIC_TARGET;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  const auto all = [](auto... has) { return (has && ...); };
#define HEADROOM_HAS(feature) (__builtin_cpu_supports(feature) != 0)
  const bool ssse3 = HEADROOM_HAS("ssse3");
  const bool sse4 =
      all(ssse3, HEADROOM_HAS("sse4.1"), HEADROOM_HAS("sse4.2"), HEADROOM_HAS("pclmul"), HEADROOM_HAS("aes"));
  const bool avx2 = all(sse4, HEADROOM_HAS("avx2"), HEADROOM_HAS("fma"), HEADROOM_HAS("bmi"), HEADROOM_HAS("bmi2"),
                        HEADROOM_HAS("lzcnt"), HEADROOM_HAS("f16c"));
  const bool avx3 = all(avx2, HEADROOM_HAS("avx512f"), HEADROOM_HAS("avx512vl"), HEADROOM_HAS("avx512dq"),
                        HEADROOM_HAS("avx512bw"), HEADROOM_HAS("avx512cd"));
  const bool avx3_dl = all(avx3, HEADROOM_HAS("avx512vnni"), HEADROOM_HAS("avx512vbmi"), HEADROOM_HAS("avx512vbmi2"),
                           HEADROOM_HAS("avx512bitalg"), HEADROOM_HAS("avx512vpopcntdq"), HEADROOM_HAS("gfni"),
                           HEADROOM_HAS("vaes"), HEADROOM_HAS("vpclmulqdq"));
#undef HEADROOM_HAS
  targets |= (ssse3 ? HWY_SSSE3 : 0) | (sse4 ? HWY_SSE4 : 0) | (avx2 ? HWY_AVX2 : 0) | (avx3 ? HWY_AVX3 : 0) |
             (avx3_dl ? HWY_AVX3_DL : 0);
#endif
  return targets;
}

}  // namespace

std::int64_t SupportedTargets() {
  static const std::int64_t kByCpu = supported_by_cpu();
  const std::int64_t left = kByCpu & ~disabled.load();
  return left != 0 ? left : HWY_STATIC_TARGET;
}

void DisableTargets(std::int64_t targets) {
  disabled = targets;
  GetChosenTarget().DeInit();
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
