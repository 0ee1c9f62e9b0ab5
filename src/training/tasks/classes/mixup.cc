#include "mixup.h"

#include <algorithm>
#include <random>
#include <vector>

#include "foundation/core/machine/system.h"
#include "foundation/core/random.h"

namespace headroom::tasks {
namespace {

// Adapts Random to std::uniform_random_bit_generator.
struct Bits {
  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT64_MAX; }
  result_type operator()() { return random.next(); }
  Random random;
};

}  // namespace

double mixup_lambda(double alpha, std::uint64_t seed) {
  Bits bits{Random(seed)};
  std::gamma_distribution<double> gamma(alpha);
  const double a = gamma(bits), b = gamma(bits);
  return a + b > 0.0 ? std::max(a, b) / (a + b) : 1.0;  // with a tiny alpha both may underflow to 0
}

void mix_rows(models::Batch& batch, double lambda, std::size_t threads) {
  constexpr std::int64_t kSlices = 64;
  const at::Tensor images = batch.at("images"), label = batch.at("label");
  const std::int64_t rows = images.size(0), row_size = images.numel() / rows;
  const auto own = static_cast<float>(lambda), other = static_cast<float>(1.0 - lambda);
  float* const all = images.data_ptr<float>();
  in_parallel(static_cast<std::size_t>(kSlices), threads, [&](std::size_t slice) {
    const std::int64_t begin = row_size * static_cast<std::int64_t>(slice) / kSlices,
                       end = row_size * (static_cast<std::int64_t>(slice) + 1) / kSlices;
    const float* const last = all + (rows - 1) * row_size;
    const std::vector<float> last_row(last + begin, last + end);
    for (std::int64_t row = rows - 1; row >= 0; --row) {
      float* const mine = all + row * row_size + begin;
      const float* const before = row == 0 ? last_row.data() : mine - row_size;
      std::transform(mine, mine + (end - begin), before, mine,
                     [own, other](float a, float b) { return own * a + other * b; });
    }
  });
  batch.tensors["other_label"] = label.roll(1);
  batch.tensors["label_share"] = at::full({rows}, lambda, at::kFloat);
}

}  // namespace headroom::tasks
