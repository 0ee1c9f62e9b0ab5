#include "exchange.h"

namespace headroom::train {

std::int64_t sums_of(const config::TrainOptions& options) {
  return options.gradient_accumulators > 0 ? options.gradient_accumulators : options.accumulate;
}

std::vector<Part> parts_of(const config::TrainOptions& options, int rank, int processes) {
  const std::int64_t sums = sums_of(options), micro_batches = options.accumulate / sums;
  std::vector<Part> parts;
  for (std::int64_t first = 0; first < sums; first += processes) {
    const std::int64_t sum = first + rank;
    parts.push_back(sum < sums ? Part{.first = sum * micro_batches, .end = (sum + 1) * micro_batches} : Part{});
  }
  return parts;
}

std::unique_ptr<Exchange> make_exchange(models::Model& model, const config::TrainOptions& options,
                                        parallel::GlooGroup& world, const Shares& shares) {
  const std::int64_t sums = sums_of(options);
  const bool as_autograd_adds = sums == 1 || sums == options.accumulate;
  return world.size() == 1 && as_autograd_adds ? local_exchange(model, options)
                                               : ordered_exchange(model, options, world, shares);
}

}  // namespace headroom::train
