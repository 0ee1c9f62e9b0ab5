#include "mixup.h"

#include <algorithm>
#include <random>
#include <vector>

#include "foundation/core/machine/system.h"
#include "foundation/core/random.h"

namespace headroom::tasks {
namespace {

// Random as the standard library's distributions want it.
struct Bits {
  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT64_MAX; }
  result_type operator()() { return random.next(); }
  Random random;
};

}  // namespace

double mixing_share(double alpha, std::uint64_t seed) {
  Bits bits{Random(seed)};
  std::gamma_distribution<double> gamma(alpha);
  const double mine = gamma(bits), others = gamma(bits);
  const double together = mine + others;
  return together > 0.0 ? std::max(mine, others) / together : 1.0;  // a tiny alpha: both too small for a number
}

void mix_rows(models::Batch& batch, double share, std::size_t threads) {
  constexpr std::int64_t kPieces = 64;
  const at::Tensor images = batch.at("images"), label = batch.at("label");
  const std::int64_t rows = images.size(0), row_size = images.numel() / rows;
  const auto own = static_cast<float>(share), other = static_cast<float>(1.0 - share);
  float* const all = images.data_ptr<float>();
  in_parallel(static_cast<std::size_t>(kPieces), threads, [&](std::size_t piece) {
    const std::int64_t begin = row_size * static_cast<std::int64_t>(piece) / kPieces,
                       end = row_size * (static_cast<std::int64_t>(piece) + 1) / kPieces;
    const float* const last = all + (rows - 1) * row_size;
    const std::vector<float> kept(last + begin, last + end);
    for (std::int64_t row = rows - 1; row >= 0; --row) {
      float* const mine = all + row * row_size + begin;
      const float* const before = row == 0 ? kept.data() : mine - row_size;
      std::transform(mine, mine + (end - begin), before, mine,
                     [own, other](float a, float b) { return own * a + other * b; });
    }
  });
  batch.tensors["other_label"] = label.roll(1);
  batch.tensors["label_share"] = at::full({rows}, share, at::kFloat);
}

}  // namespace headroom::tasks
