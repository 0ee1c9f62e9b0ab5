#include "ranks.h"

#include <algorithm>

#include "cost.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "headroom/core/exact.h"

namespace headroom::cost {

using namespace config;
using namespace parallel;

namespace {

constexpr std::int64_t kFloatBytes = 4;

// Totals over the shards of one rank.
struct RankLoad {
  std::int64_t elements = 0;
  std::int64_t moments = 0;  // elements of the optimizer's state
  std::int64_t sent = 0;     // elements, including padding between tensors
  std::int64_t bucket = 0;   // elements of the largest bucket
};

std::vector<RankLoad> loads_of(const std::vector<ParameterTensor>& tensors, std::int64_t ranks, Optimizer optimizer) {
  const std::vector<ShardedTensor> sharded = transformed(tensors, [&](const ParameterTensor& tensor) {
    return ShardedTensor{.elements = tensor.elements, .elementwise = is_elementwise(optimizer, tensor.hidden)};
  });
  std::vector<RankLoad> loads(static_cast<std::size_t>(ranks));
  for (const Shard& shard : assign_shards(sharded, static_cast<int>(ranks))) {
    RankLoad& load = loads[static_cast<std::size_t>(shard.owner)];
    load.elements += shard.count();
    load.moments += shard.count() * (has_second_moment(optimizer, tensors[shard.tensor].hidden) ? 2 : 1);
    load.sent += aligned(shard.count());
  }
  for (RankLoad& load : loads) {
    load.bucket = std::min(bucket_elements(ranks), load.sent);
  }
  return loads;
}

}  // namespace

RanksCost ranks_cost(const Config& given, std::int64_t ranks) {
  const std::int64_t n = ranks;
  Config config = given;
  raise_accumulators(config.train, n);
  RanksCost cost{.elements = count_parameters(config.model), .accumulators = accumulators_of(config.train)};
  cost.rounds = ceil_div(cost.accumulators, n);
  const StepMemory memory = step_memory(config);
  const auto macs = static_cast<double>(executed_cost(config.model, config.whole_sequences()).step_macs);
  const std::vector<ParameterTensor> tensors = parameter_tensors(config.model);
  const std::vector<RankLoad> loads = loads_of(tensors, n, config.train.optimizer);
  const auto largest = std::ranges::max_element(
      tensors, [](const ParameterTensor& a, const ParameterTensor& b) { return a.elements < b.elements; });
  const Exact overhead = Exact(2) * largest->elements * kFloatBytes + kProgramBytes;
  Exact all = 0;
  for (const RankLoad& load : loads) {
    all += load.sent;
  }
  const std::int64_t total = all.value();
  // A single rank may leave the accumulation to autograd, as in make_gradient_reducer().
  const bool local = n == 1 && (cost.accumulators == 1 || cost.accumulators == config.train.accumulate);
  for (std::int64_t rank = 0; rank < n; ++rank) {
    const RankLoad& load = loads[static_cast<std::size_t>(rank)];
    RankCost one{.elements = load.elements, .accumulators = ceil_div(cost.accumulators - rank, n)};
    one.parameters = memory.parameters;
    one.gradients = memory.gradients;
    one.moments = load.moments * kFloatBytes;
    one.running_sums = !local && cost.rounds > 1 ? load.sent * kFloatBytes : 0;
    one.staging = (Exact(2) * (n - 1) * load.bucket * kFloatBytes).value();
    one.activations =
        memory.activations - memory.carried + (Exact(memory.carried / cost.accumulators) * one.accumulators).value();
    one.total = local ? (overhead + memory.total).value()
                      : (overhead + one.parameters + one.gradients + one.moments + one.running_sums + one.staging +
                         one.activations)
                            .value();
    one.gradients_sent = (Exact(one.accumulators) * (total - load.sent) * kFloatBytes).value();
    one.gradients_received = (Exact(cost.accumulators - one.accumulators) * load.sent * kFloatBytes).value();
    one.parameters_sent = (Exact(n - 1) * load.sent * kFloatBytes).value();
    one.parameters_received = (Exact(total - load.sent) * kFloatBytes).value();
    one.macs = macs * static_cast<double>(one.accumulators) / static_cast<double>(cost.accumulators);
    cost.all.push_back(one);
  }
  return cost;
}

RanksCost sharded_cost(const Config& given, std::int64_t ranks) {
  RanksCost cost = ranks_cost(given, ranks);  // checks the arguments
  Config config = given;
  raise_accumulators(config.train, ranks);
  const StepMemory memory = step_memory(config);
  ModelOptions ends = config.model;
  ends.n_layers = ends.n_decoder_layers = ends.n_groups = 0;
  const std::int64_t outside = count_parameters(ends), blocks = cost.elements - outside;
  const std::int64_t block = ceil_div(blocks, config.model.distinct_layers());
  cost.accumulators = config.train.accumulate;
  cost.rounds = ceil_div(cost.accumulators, ranks);
  for (RankCost& one : cost.all) {
    one.elements = ceil_div(cost.elements, ranks);
    one.accumulators = cost.rounds;
    one.parameters = one.gradients = one.elements * kFloatBytes;
    one.moments = 2 * one.parameters;
    one.running_sums = 0;
    one.staging = (Exact(2) * outside + Exact(4) * block).value() * kFloatBytes;
    one.activations = memory.activations - memory.copies;
    const std::int64_t step = one.gradients + one.staging + one.activations, saving = one.parameters + one.moments;
    one.total = (Exact(kPythonBytes) + one.parameters + one.moments + std::max(step, saving)).value();
    const Exact passes = Exact(one.accumulators) * (ranks - 1) * kFloatBytes;
    one.gradients_sent = one.gradients_received = (passes * one.elements).value();
    one.parameters_sent = one.parameters_received = (passes * ceil_div(cost.elements + blocks, ranks)).value();
  }
  return cost;
}

double RanksCost::imbalance() const {
  std::int64_t most = 0, sum = 0;
  for (const RankCost& one : all) {
    most = std::max(most, one.elements);
    sum += one.elements;
  }
  return static_cast<double>(most) * static_cast<double>(all.size()) / static_cast<double>(sum);
}

const RankCost& RanksCost::largest() const {
  return *std::ranges::max_element(all, [](const RankCost& a, const RankCost& b) { return a.total < b.total; });
}

double RanksCost::of_all_reduce() const {
  if (all.size() == 1) {
    return 1.0;
  }
  std::int64_t most = 0;
  for (const RankCost& one : all) {
    most = std::max({most, one.gradients_sent + one.parameters_sent, one.gradients_received + one.parameters_received});
  }
  const auto n = static_cast<double>(all.size());
  return static_cast<double>(most) / (8.0 * static_cast<double>(elements) * (n - 1.0) / n);
}

double RanksCost::hiding_bandwidth(double macs_per_second) const {
  double most = 0.0;
  for (const RankCost& one : all) {
    const double seconds = one.macs * 2.0 / 3.0 / macs_per_second;
    most = std::max(most, static_cast<double>(std::max(one.gradients_sent, one.gradients_received)) / seconds);
  }
  return most;
}

}  // namespace headroom::cost
