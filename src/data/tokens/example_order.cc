#include "example_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "headroom/core/error.h"
#include "run_order.h"
#include "shuffle.h"

namespace headroom::data {

ExampleOrder::ExampleOrder(OrderOptions options, std::string what)
    : options_(std::move(options)), what_(std::move(what)), per_epoch_(options_.examples / options_.batch) {
  if (per_epoch_ < 1) {
    user_error("{}: holds {} examples, too few for a batch of train.batch_size = {}", what_, options_.examples,
               options_.batch);
  }
}

std::vector<std::int64_t> ExampleOrder::next() {
  fill();
  const std::int64_t begin = (position_.step - filled_.step) * options_.batch;
  const auto first = pool_.begin() + begin;
  std::vector<std::int64_t> batch(first, first + options_.batch);
  if (++position_.step == per_epoch_) {
    position_ = {.epoch = position_.epoch + 1, .step = 0};
  }
  return batch;
}

void ExampleOrder::seek(DataPosition position) {
  if (position.epoch < 0 || position.step < 0 || position.step >= per_epoch_) {
    user_error("{}: has {} batches an epoch, so there is no epoch {}, step {}", what_, per_epoch_, position.epoch,
               position.step);
  }
  position_ = position;
}

void ExampleOrder::fill() {
  const DataPosition wanted = {.epoch = position_.epoch, .step = position_.step / kPool * kPool};
  if (filled_ == wanted) {
    return;
  }
  const std::uint64_t seed = mix(options_.seed, static_cast<std::uint64_t>(wanted.epoch));
  const std::int64_t batches = std::min(kPool, per_epoch_ - wanted.step);
  std::vector<std::int64_t> examples(static_cast<std::size_t>(batches * options_.batch));
  std::iota(examples.begin(), examples.end(), wanted.step * options_.batch);  // their places in the epoch
  const bool by_file = options_.runs.together > 0 && !options_.runs.sizes.empty();
  if (by_file) {
    std::transform(examples.begin(), examples.end(), examples.begin(), RunOrder(options_.runs, seed));
  } else {
    const Shuffle order(static_cast<std::uint64_t>(options_.examples), seed);
    std::transform(examples.begin(), examples.end(), examples.begin(), [&](std::int64_t place) {
      return static_cast<std::int64_t>(order(static_cast<std::uint64_t>(place)));
    });
  }
  pool_ = examples;
  if (options_.length && !by_file) {
    std::stable_sort(examples.begin(), examples.end(),
                     [this](std::int64_t a, std::int64_t b) { return options_.length(a) < options_.length(b); });
    const Shuffle places(static_cast<std::uint64_t>(batches), mix(seed, static_cast<std::uint64_t>(wanted.step)));
    for (std::int64_t i = 0; i < batches; ++i) {
      const auto from =
          examples.begin() + static_cast<std::int64_t>(places(static_cast<std::uint64_t>(i))) * options_.batch;
      std::copy(from, from + options_.batch, pool_.begin() + i * options_.batch);
    }
  }
  filled_ = wanted;
}

}  // namespace headroom::data
