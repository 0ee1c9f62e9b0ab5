#include "example_order.h"

#include <numeric>
#include <utility>

#include "headroom/core/error.h"

namespace headroom::data {
ExampleOrder::ExampleOrder(OrderOptions options, std::string what)
    : EpochStream(std::move(what)), options_(std::move(options)) {
  set_per_epoch(options_.examples / options_.batch);
  if (per_epoch() < 1) {
    user_error("{}: holds {} examples, too few for a batch of train.batch_size = {}", name(), options_.examples,
               options_.batch);
  }
}

std::vector<std::int64_t> ExampleOrder::next() {
  fill();
  const auto first = pool_.begin() + (advance().step - filled_.step) * options_.batch;
  return {first, first + options_.batch};
}

void ExampleOrder::fill() {
  const DataPosition wanted = {.epoch = position().epoch, .step = position().step / kPool * kPool};
  if (filled_ == wanted) {
    return;
  }
  const std::uint64_t seed = mix(options_.seed, static_cast<std::uint64_t>(wanted.epoch));
  const std::int64_t batches = std::min(kPool, per_epoch() - wanted.step);
  std::vector<std::int64_t> examples(static_cast<std::size_t>(batches * options_.batch));
  std::iota(examples.begin(), examples.end(), wanted.step * options_.batch);  // positions in the epoch
  const Shuffle order(static_cast<std::uint64_t>(options_.examples), seed);
  std::ranges::transform(examples, examples.begin(), [&](std::int64_t place) {
    return static_cast<std::int64_t>(order(static_cast<std::uint64_t>(place)));
  });
  pool_ = examples;
  if (options_.length) {
    std::ranges::stable_sort(
        examples, [this](std::int64_t a, std::int64_t b) { return options_.length(a) < options_.length(b); });
    const Shuffle places(static_cast<std::uint64_t>(batches), mix(seed, static_cast<std::uint64_t>(wanted.step)));
    for (std::int64_t i = 0; i < batches; ++i) {
      const auto from =
          examples.begin() + static_cast<std::int64_t>(places(static_cast<std::uint64_t>(i))) * options_.batch;
      std::copy(from, from + options_.batch, pool_.begin() + i * options_.batch);
    }
  }
  filled_ = wanted;
}

std::vector<UnitRange> spread_ranges(std::int64_t size, std::int64_t count, std::int64_t ranges) {
  std::vector<UnitRange> all;
  for (std::int64_t i = 0; i < ranges; ++i) {
    const std::int64_t first = i * count / ranges, next = (i + 1) * count / ranges;
    const std::int64_t skipped = (2 * i + 1) * (size - count) / (2 * ranges);  // units before this range
    all.push_back({.begin = skipped + first, .end = skipped + next});
  }
  return all;
}

std::vector<std::int64_t> spread_units(std::int64_t size, std::int64_t most,
                                       const std::function<std::int64_t(std::int64_t unit)>& cost) {
  std::vector<std::int64_t> units(static_cast<std::size_t>(size));
  std::iota(units.begin(), units.end(), std::int64_t{0});
  const auto total = [&] {
    return std::accumulate(units.begin(), units.end(), std::int64_t{0},
                           [&](std::int64_t sum, std::int64_t unit) { return sum + cost(unit); });
  };
  // If the part is too large, it shrinks in proportion and is spread again.
  for (std::int64_t sum = total(); most > 0 && sum > most && units.size() > 1; sum = total()) {
    const auto now = std::ssize(units);
    const double share = static_cast<double>(most) / static_cast<double>(sum);
    const auto fits = static_cast<std::int64_t>(share * static_cast<double>(now));
    const std::int64_t count = std::clamp<std::int64_t>(fits, 1, now - 1);
    units.clear();
    for (const UnitRange& one : spread_ranges(size, count, count)) {
      units.push_back(one.begin);
    }
  }
  return units;
}

}  // namespace headroom::data
