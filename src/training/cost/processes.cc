#include "processes.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "cost.h"
#include "headroom/core/error.h"
#include "headroom/core/exact.h"
#include "memory.h"

namespace headroom::cost {

using namespace config;

namespace {

constexpr std::int64_t kNumber = 4;  // bytes of what is kept and sent
constexpr std::int64_t kMostProcesses = 65536;

struct Share {
  std::int64_t numbers = 0;  // of its tensors
  std::int64_t moments = 0;  // numbers that the optimizer remembers of them
  std::int64_t sent = 0;     // with what fills up tensors
  std::int64_t widest = 0;   // the largest bucket
};

std::vector<Share> shares_of(const std::vector<ParameterTensor>& tensors, std::int64_t processes, Optimizer optimizer) {
  std::vector<SharedTensor> shared;
  shared.reserve(tensors.size());
  for (const ParameterTensor& tensor : tensors) {
    shared.push_back({.numbers = tensor.numbers, .by_number = is_elementwise(optimizer, tensor.hidden)});
  }
  std::vector<Share> shares(static_cast<std::size_t>(processes));
  for (const Piece& piece : share_out(shared, static_cast<int>(processes))) {
    Share& share = shares[static_cast<std::size_t>(piece.owner)];
    share.numbers += piece.count();
    share.moments += piece.count() * (has_second_moment(optimizer, tensors[piece.tensor].hidden) ? 2 : 1);
    share.sent += aligned(piece.count());
  }
  for (Share& share : shares) {
    share.widest = std::min(bucket_numbers(processes), share.sent);
  }
  return shares;
}

// Whole tensors, or pieces of almost equal size where they are too large.
std::vector<Piece> cut(const std::vector<SharedTensor>& tensors, std::int64_t most) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t numbers = tensors[i].numbers;
    std::int64_t step = std::max<std::int64_t>(numbers, 1);
    if (tensors[i].by_number && numbers > most) {
      const std::int64_t units = (numbers + kPieceUnit - 1) / kPieceUnit, count = (numbers + most - 1) / most;
      step = (units + count - 1) / count * kPieceUnit;
    }
    for (std::int64_t begin = 0; begin < numbers || begin == 0; begin += step) {
      pieces.push_back({.tensor = i, .begin = begin, .end = std::min(begin + step, numbers)});
    }
  }
  return pieces;
}

// Sums of gradients that a step is made of.
std::int64_t sums_of_step(const TrainOptions& train, std::int64_t processes) {
  const std::int64_t sums = train.gradient_accumulators > 0 ? train.gradient_accumulators : train.accumulate;
  if (sums < processes && train.batch_size % processes != 0) {
    user_error(
        "cost: train.batch_size: {} sequences cannot be shared out among {} processes: it must be a multiple of "
        "their number",
        train.batch_size, processes);
  }
  return std::max(sums, processes);
}

}  // namespace

std::vector<Piece> share_out(const std::vector<SharedTensor>& tensors, int processes) {
  constexpr std::int64_t kPieces = 32;  // of the mean share, at least
  std::int64_t all = 0;
  for (const SharedTensor& tensor : tensors) {
    all += tensor.numbers;
  }
  const std::int64_t part = all / processes / kPieces / kPieceUnit * kPieceUnit;
  std::vector<Piece> pieces = cut(tensors, processes > 1 ? std::max(part, kPieceUnit) : all);
  std::vector<Piece*> order;
  order.reserve(pieces.size());
  for (Piece& piece : pieces) {
    order.push_back(&piece);
  }
  std::stable_sort(order.begin(), order.end(), [](const Piece* a, const Piece* b) { return a->count() > b->count(); });
  using Load = std::pair<std::int64_t, int>;  // numbers, process
  std::priority_queue<Load, std::vector<Load>, std::greater<>> emptiest;
  for (int process = 0; process < processes; ++process) {
    emptiest.emplace(0, process);
  }
  for (Piece* piece : order) {
    const auto [numbers, process] = emptiest.top();
    emptiest.pop();
    piece->owner = process;
    emptiest.emplace(numbers + piece->count(), process);
  }
  return pieces;
}

ProcessesCost processes_cost(const Config& given, std::int64_t processes) {
  if (processes < 1 || processes > kMostProcesses) {
    user_error("cost: there must be 1 to {} processes, got {}", kMostProcesses, processes);
  }
  const std::int64_t n = processes;
  ProcessesCost cost{.sums = sums_of_step(given.train, n)};
  cost.rounds = (cost.sums + n - 1) / n;
  Config config = given;
  if (cost.sums > std::max(given.train.gradient_accumulators, given.train.accumulate)) {
    config.train.accumulate = cost.sums;
  }
  const StepMemory memory = step_memory(config);
  const auto macs = static_cast<double>(executed_cost(config.model, config.whole_sequences()).step_macs);
  const std::vector<ParameterTensor> tensors = parameter_tensors(config.model);
  const std::vector<Share> shares = shares_of(tensors, n, config.train.optimizer);
  const auto largest =
      std::max_element(tensors.begin(), tensors.end(),
                       [](const ParameterTensor& a, const ParameterTensor& b) { return a.numbers < b.numbers; });
  const Exact besides = Exact(2) * largest->numbers * kNumber + kProgramBytes;
  Exact all = 0;
  for (const Share& share : shares) {
    all += share.sent;
  }
  const std::int64_t total = all.value();
  const bool alone = n == 1 && (cost.sums == 1 || cost.sums == config.train.accumulate);  // autograd adds
  for (std::int64_t rank = 0; rank < n; ++rank) {
    const Share& share = shares[static_cast<std::size_t>(rank)];
    ProcessCost one{.numbers = share.numbers, .sums = (cost.sums - rank + n - 1) / n};
    one.parameters = memory.parameters;
    one.gradients = memory.gradients;
    one.moments = share.moments * kNumber;
    one.running_sums = !alone && cost.rounds > 1 ? share.sent * kNumber : 0;
    one.staging = (Exact(2) * (n - 1) * share.widest * kNumber).value();
    one.activations = memory.activations - memory.carried + (Exact(memory.carried / cost.sums) * one.sums).value();
    one.total = alone ? (besides + memory.total).value()
                      : (besides + one.parameters + one.gradients + one.moments + one.running_sums + one.staging +
                         one.activations)
                            .value();
    one.gradients_sent = (Exact(one.sums) * (total - share.sent) * kNumber).value();
    one.gradients_received = (Exact(cost.sums - one.sums) * share.sent * kNumber).value();
    one.parameters_sent = (Exact(n - 1) * share.sent * kNumber).value();
    one.parameters_received = (Exact(total - share.sent) * kNumber).value();
    one.macs = macs * static_cast<double>(one.sums) / static_cast<double>(cost.sums);
    cost.all.push_back(one);
  }
  return cost;
}

double ProcessesCost::imbalance() const {
  std::int64_t most = 0, sum = 0;
  for (const ProcessCost& one : all) {
    most = std::max(most, one.numbers);
    sum += one.numbers;
  }
  return static_cast<double>(most) * static_cast<double>(all.size()) / static_cast<double>(sum);
}

const ProcessCost& ProcessesCost::largest() const {
  return *std::max_element(all.begin(), all.end(),
                           [](const ProcessCost& a, const ProcessCost& b) { return a.total < b.total; });
}

double ProcessesCost::of_all_reduce() const {
  if (all.size() == 1) {
    return 1.0;
  }
  std::int64_t most = 0;
  for (const ProcessCost& one : all) {
    most = std::max({most, one.gradients_sent + one.parameters_sent, one.gradients_received + one.parameters_received});
  }
  const auto n = static_cast<double>(all.size());
  return static_cast<double>(most) / (2.0 * static_cast<double>(all.front().parameters) * (n - 1.0) / n);
}

double ProcessesCost::hiding_bandwidth(double macs_per_second) const {
  double most = 0.0;
  for (const ProcessCost& one : all) {
    const double seconds = one.macs * 2.0 / 3.0 / macs_per_second;
    most = std::max(most, static_cast<double>(std::max(one.gradients_sent, one.gradients_received)) / seconds);
  }
  return most;
}

}  // namespace headroom::cost
