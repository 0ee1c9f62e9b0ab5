#include "shared_memory.h"

namespace headroom::train {
namespace {

constexpr std::uint32_t kTag = (std::uint32_t{1} << 29) + 1;

// Copies a process's rows to their places among all.
void place(const at::Tensor& all, const at::Tensor& own, const std::vector<Part>& parts, std::int64_t rows) {
  std::int64_t next = 0;
  for (const Part& part : parts) {
    const std::int64_t count = (part.end - part.first) * rows;
    all.narrow(0, part.first * rows, count).copy_(own.narrow(0, next, count));
    next += count;
  }
}

std::int64_t micro_batches(const std::vector<Part>& parts) {
  std::int64_t count = 0;
  for (const Part& part : parts) {
    count += part.end - part.first;
  }
  return count;
}

}  // namespace

models::Memory own_rows(const models::Memory& all, const std::vector<Part>& parts, std::int64_t accumulate) {
  std::vector<models::Memory> mine;
  for (const Part& part : parts) {
    if (!all.layers.empty() && part.first < part.end) {
      const std::int64_t rows = all.layers[0].size(0) / accumulate;
      mine.push_back(all.narrow(part.first * rows, (part.end - part.first) * rows));
    }
  }
  return mine.empty() ? models::Memory() : models::Memory::join(std::move(mine));
}

models::Memory spread_layers(const models::Memory& own, const config::TrainOptions& options,
                             parallel::GlooGroup& world) {
  const int n = world.size();
  models::Memory spread;
  std::vector<parallel::Transfer> sent;
  for (std::size_t l = 0; l < own.layers.size(); ++l) {
    const at::Tensor mine = own.layers[l].contiguous();
    const auto holder = static_cast<int>(l % static_cast<std::size_t>(n));
    const std::int64_t rows = mine.size(0) / micro_batches(parts_of(options, world.rank(), n));
    std::vector<std::int64_t> shape = mine.sizes().vec();
    shape[0] = rows * options.accumulate;
    if (holder != world.rank()) {
      spread.layers.push_back(at::empty(shape, mine.options().device(at::kMeta)));
      sent.push_back(world.send(mine, holder, kTag));
      continue;
    }
    const at::Tensor all = at::empty(shape, mine.options());
    for (int peer = 0; peer < n; ++peer) {
      const std::vector<Part> parts = parts_of(options, peer, n);
      at::Tensor theirs = mine;
      if (peer != world.rank()) {
        std::vector<std::int64_t> their_shape = shape;
        their_shape[0] = rows * micro_batches(parts);
        theirs = at::empty(their_shape, mine.options());
        world.receive(theirs, peer, kTag).wait();
      }
      place(all, theirs, parts, rows);
    }
    spread.layers.push_back(all);
  }
  for (parallel::Transfer& transfer : sent) {
    transfer.wait();
  }
  return spread;
}

}  // namespace headroom::train
