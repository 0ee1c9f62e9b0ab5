#include "gradient_reducer.h"

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

// The reducer of a single rank, in which autograd accumulates the gradients.
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

}  // namespace headroom::train
