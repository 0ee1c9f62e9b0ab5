#include "gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/ops/optimizers.h"

namespace headroom::train {
namespace {

// Accumulates losses on the device until all micro-batches have been launched, because reading a value blocks.
class LossSum {
 public:
  void add(const MicroBatchReport& report) {
    add(cross_entropy_, report.cross_entropy);
    if (report.regulariser.defined()) {
      add(regulariser_, report.regulariser);
    }
  }
  void read(ReducedStep& step) const {
    if (!regulariser_.defined()) {
      step.loss = cross_entropy_.item<double>();
      return;
    }
    const at::Tensor both = at::stack({cross_entropy_, regulariser_}).cpu();
    step.loss = both[0].item<double>();
    step.regulariser = both[1].item<double>();
  }

 private:
  static void add(at::Tensor& sum, const at::Tensor& term) { sum = sum.defined() ? sum + term : term; }
  at::Tensor cross_entropy_, regulariser_;  // float64
};

// The reducer of a single rank: autograd accumulates the gradients.
class LocalReducer : public GradientReducer {
 public:
  LocalReducer(models::Model& model, const config::TrainOptions& options)
      : model_(model),
        accumulate_(options.accumulate),
        owned_(owned_shards(model.parameters(), options.optimizer, alone())) {}

  ReducedStep run(const StepPasses& passes) override {
    OwnPasses own(passes);
    for (std::int64_t i = 0; i < accumulate_; ++i) {
      own.forward(i).backward();
    }
    ReducedStep step;
    LossSum sum;
    for (const MicroBatchReport& report : own.take_reports()) {
      sum.add(report);
      for (const auto& [name, update] : report.updates) {
        nn::report(step.updates, name, update);
      }
    }
    sum.read(step);
    step.gradient_norm = ops::global_norm(gradients());
    step.memory = own.take_memory();
    step.stop = interrupted();
    return step;
  }

  const std::vector<Shard>& owned() const override { return owned_; }

  std::vector<at::Tensor> gradients() override {
    std::vector<at::Tensor> all;
    for (const nn::Parameter& parameter : model_.parameters().all()) {
      at::Tensor& gradient = parameter.tensor.mutable_grad();
      if (!gradient.defined()) {  // unused in this step, such as an expert without tokens
        gradient = at::zeros_like(parameter.tensor.detach());
      }
      all.push_back(gradient);
    }
    return all;
  }

  void publish(bool /*updated*/) override { model_.parameters().zero_grad(); }

 private:
  models::Model& model_;
  std::int64_t accumulate_;
  std::vector<Shard> owned_;
};

constexpr std::uint32_t kLayerTag = (std::uint32_t{1} << 29) + 1;

// Copies a rank's rows to their positions among all rows.
void scatter_rows(const at::Tensor& all, const at::Tensor& own, const std::vector<MicroBatchRange>& ranges,
                  std::int64_t rows) {
  std::int64_t next = 0;
  for (const MicroBatchRange& range : ranges) {
    const std::int64_t count = (range.end - range.first) * rows;
    all.narrow(0, range.first * rows, count).copy_(own.narrow(0, next, count));
    next += count;
  }
}

std::int64_t micro_batches_in(const std::vector<MicroBatchRange>& ranges) {
  return sum_over(ranges, [](const MicroBatchRange& range) { return range.end - range.first; });
}

}  // namespace

at::Tensor OwnPasses::forward(std::int64_t micro_batch) {
  memories_.push_back(passes_.memory.narrow(std::ssize(memories_) * passes_.rows, passes_.rows));
  return passes_.forward(memories_.back(), reports_.emplace_back(MicroBatchReport{.micro_batch = micro_batch}));
}

std::vector<MicroBatchRange> ranges_of(const config::TrainOptions& options, int rank, int ranks) {
  const std::int64_t accumulators = parallel::accumulators_of(options),
                     micro_batches = options.accumulate / accumulators;
  std::vector<MicroBatchRange> ranges;
  for (std::int64_t first = 0; first < accumulators; first += ranks) {
    const std::int64_t own = first + rank;
    ranges.push_back(own < accumulators
                         ? MicroBatchRange{.first = own * micro_batches, .end = (own + 1) * micro_batches}
                         : MicroBatchRange{});
  }
  return ranges;
}

std::vector<bool> rows_of(const config::TrainOptions& options, const std::vector<MicroBatchRange>& ranges) {
  const std::int64_t rows = options.batch_size / options.accumulate;  // of a micro-batch
  std::vector<bool> in(static_cast<std::size_t>(options.batch_size), false);
  for (const MicroBatchRange& range : ranges) {
    std::fill(in.begin() + range.first * rows, in.begin() + range.end * rows, true);
  }
  return in;
}

std::unique_ptr<GradientReducer> local_reducer(models::Model& model, const config::TrainOptions& options) {
  return std::make_unique<LocalReducer>(model, options);
}

std::unique_ptr<GradientReducer> make_gradient_reducer(models::Model& model, const config::TrainOptions& options,
                                                       parallel::GlooGroup& group) {
  const std::int64_t accumulators = parallel::accumulators_of(options);
  const bool as_autograd = accumulators == 1 || accumulators == options.accumulate;
  return group.size() == 1 && as_autograd ? local_reducer(model, options) : ordered_reducer(model, options, group);
}

models::Memory own_rows(const models::Memory& all, const std::vector<MicroBatchRange>& ranges,
                        std::int64_t accumulate) {
  std::vector<models::Memory> mine;
  for (const MicroBatchRange& range : ranges) {
    if (!all.layers.empty() && range.first < range.end) {
      const std::int64_t rows = all.layers[0].size(0) / accumulate;
      mine.push_back(all.narrow(range.first * rows, (range.end - range.first) * rows));
    }
  }
  return mine.empty() ? models::Memory() : models::Memory::join(std::move(mine));
}

models::Memory gather_layers(const models::Memory& own, const config::TrainOptions& options,
                             parallel::GlooGroup& group) {
  const int n = group.size();
  models::Memory gathered;
  std::vector<parallel::Transfer> sent;
  for (std::size_t l = 0; l < own.layers.size(); ++l) {
    const at::Tensor mine = own.layers[l].contiguous();
    const auto holder = static_cast<int>(l % static_cast<std::size_t>(n));
    const std::int64_t rows = mine.size(0) / micro_batches_in(ranges_of(options, group.rank(), n));
    std::vector<std::int64_t> shape = mine.sizes().vec();
    shape[0] = rows * options.accumulate;
    if (holder != group.rank()) {
      gathered.layers.push_back(at::empty(shape, mine.options().device(at::kMeta)));
      sent.push_back(group.send(mine, holder, kLayerTag));
      continue;
    }
    const at::Tensor all = at::empty(shape, mine.options());
    for (int peer = 0; peer < n; ++peer) {
      const std::vector<MicroBatchRange> ranges = ranges_of(options, peer, n);
      at::Tensor theirs = mine;
      if (peer != group.rank()) {
        std::vector<std::int64_t> their_shape = shape;
        their_shape[0] = rows * micro_batches_in(ranges);
        theirs = at::empty(their_shape, mine.options());
        group.receive(theirs, peer, kLayerTag).wait();
      }
      scatter_rows(all, theirs, ranges, rows);
    }
    gathered.layers.push_back(all);
  }
  for (parallel::Transfer& transfer : sent) {
    transfer.wait();
  }
  return gathered;
}

static_assert(parallel::kShardUnit % ops::kSquareBlock == 0,
              "the bits of the gradient norm would depend on the shards");

bool is_whole(const Shard& shard, const at::Tensor& tensor) {
  return shard.count() == tensor.numel();
}

at::Tensor view_of(const at::Tensor& tensor, const Shard& shard) {
  return is_whole(shard, tensor) ? tensor : tensor.detach().view({-1}).narrow(0, shard.begin, shard.count());
}

std::vector<Shard> all_shards(const nn::Parameters& parameters, config::Optimizer optimizer, int ranks) {
  std::vector<parallel::ShardedTensor> tensors;
  for (const nn::Parameter& parameter : parameters.all()) {
    tensors.push_back({.elements = parameter.tensor.numel(),
                       .elementwise = config::is_elementwise(optimizer, parameter.hidden.has_value())});
  }
  return parallel::assign_shards(tensors, ranks);
}

std::vector<Shard> owned_shards(const nn::Parameters& parameters, config::Optimizer optimizer,
                                const ProcessGroup& group) {
  std::vector<Shard> shards = all_shards(parameters, optimizer, group.size());
  std::erase_if(shards, [&](const Shard& shard) { return shard.owner != group.rank(); });
  return shards;
}

Layout::Layout(std::vector<Shard> of_all, int ranks) : shards(std::move(of_all)) {
  std::vector<std::size_t> first;  // index of each parameter's first shard, and the end
  for (std::size_t k = 0; k < shards.size(); ++k) {
    if (first.size() == shards[k].tensor) {
      first.push_back(k);
    }
  }
  first.push_back(shards.size());
  places.resize(first.size() - 1);
  const std::int64_t most = parallel::bucket_elements(ranks);
  const auto add_if = [&](auto&& condition) {
    for (std::size_t i = places.size(); i-- > 0;) {
      const Shard* const begin = shards.data() + first[i];
      const Shard* const end = shards.data() + first[i + 1];
      if (condition(*begin, end - begin == 1)) {
        add(begin, end, most);
      }
    }
  };
  for (int owner = 0; owner < ranks; ++owner) {
    add_if([owner](const Shard& shard, bool whole) { return whole && shard.owner == owner; });
  }
  add_if([](const Shard&, bool whole) { return !whole; });
  for (const Bucket& bucket : buckets) {
    if (owner_ranges.empty() || owner_ranges.back().owner != bucket.owner) {
      owner_ranges.push_back({.owner = bucket.owner, .begin = bucket.begin, .end = bucket.end});
    }
    owner_ranges.back().end = bucket.end;
  }
}

void Layout::add(const Shard* first, const Shard* end, std::int64_t most) {
  Place& place = places[first->tensor];
  place.begin = elements;
  place.count = (end - 1)->end;
  for (const Shard* shard = first; shard != end && place.count > 0; ++shard) {
    add_to_buckets(*shard, place.begin, most);
  }
  if (place.count > 0) {
    place.end_bucket = buckets.size();
    place.first_bucket = bucket_at(first->tensor, place.begin);
  }
  for (std::size_t b = place.first_bucket; b < place.end_bucket; ++b) {
    ++buckets[b].parameters;
  }
  elements += parallel::aligned(place.count);
}

// Adds the shard to the last bucket if all of it fits there; otherwise opens as many buckets as it needs.
void Layout::add_to_buckets(const Shard& shard, std::int64_t begin, std::int64_t most) {
  const std::int64_t end = begin + parallel::aligned(shard.end);
  for (std::int64_t at = begin + shard.begin; at < end; at = buckets.back().end) {
    const bool fits = !buckets.empty() && buckets.back().owner == shard.owner && end - buckets.back().begin <= most;
    if (!fits) {
      buckets.push_back({.owner = shard.owner, .begin = at, .end = at, .last = shard.tensor});
    }
    Bucket& bucket = buckets.back();
    bucket.end = std::min(end, bucket.begin + most);
    bucket.last = std::min(bucket.last, shard.tensor);
  }
}

std::size_t Layout::bucket_at(std::size_t parameter, std::int64_t element) const {
  const auto before = [](std::int64_t value, const Bucket& bucket) { return value < bucket.end; };
  const auto end = buckets.begin() + static_cast<std::ptrdiff_t>(places[parameter].end_bucket);
  return static_cast<std::size_t>(std::upper_bound(buckets.begin(), end, element, before) - buckets.begin());
}

}  // namespace headroom::train
