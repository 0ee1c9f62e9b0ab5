// Where the time of training steps and of decoded tokens goes: the time inside each operator that is not inside
// another, added up by name, next to the time that its memory and its products need at the machine's best.
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "demand.h"
#include "headroom/config/config.h"
#include "timing.h"
#include "training/train/loop/machine.h"
#include "worker.h"

namespace headroom::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The open operators of this thread, each with the time that went to operators inside it.
struct Open : at::ObserverContext {
  explicit Open(const at::RecordFunction& function) : name(function.name()), call(function) {}
  std::string name;
  Call call;
  Clock::time_point start;
  double inside = 0.0;
  Demand demand_inside;
  Open* outer = nullptr;
};
thread_local Open* innermost = nullptr;
struct Total {
  double seconds = 0.0;
  Demand demand;
  std::int64_t calls = 0;
};
std::map<std::string, Total>* totals = nullptr;
at::Device profiled = at::kCPU;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto open = std::make_unique<Open>(function);
  open->outer = innermost;
  innermost = open.get();
  synchronize(profiled);
  open->start = Clock::now();
  return open;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* open = static_cast<Open*>(context);
  synchronize(profiled);
  const double seconds = std::chrono::duration<double>(Clock::now() - open->start).count();
  const Demand demand = open->call.end(function);
  innermost = open->outer;
  if (open->outer != nullptr) {
    open->outer->inside += seconds;
    open->outer->demand_inside += demand;
  }
  Total& total = (*totals)[open->name];
  total.seconds += seconds - open->inside;
  Demand own = demand;
  own -= open->demand_inside;
  total.demand += {.bytes = std::max(own.bytes, 0.0), .flops = std::max(own.flops, 0.0)};
  ++total.calls;
}

// The work as a whole, then the operators that take most of it.
std::vector<Row> profile_of(const std::string& name, const Work& work, std::int64_t repeats, const Limits& limits) {
  work();
  work();
  std::map<std::string, Total> all;
  totals = &all;
  const at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                     .needsInputs(true)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  double whole = 0.0;
  for (std::int64_t i = 0; i < repeats; ++i) {
    whole += seconds_of(work, profiled);
  }
  at::removeCallback(handle);
  std::vector<std::pair<std::string, Total>> by_time(all.begin(), all.end());
  std::sort(by_time.begin(), by_time.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  by_time.resize(std::min<std::size_t>(by_time.size(), 16));
  const auto n = static_cast<double>(repeats);
  std::vector<Row> rows = {{.name = name, .seconds = whole / n}};
  for (const auto& [operation, total] : by_time) {
    const double least = std::max(total.demand.bytes / limits.bandwidth_gb, total.demand.flops / limits.product_gflops);
    Row row{.name = fmt::format("  {:4.1f}% {:4.0f} x {}", total.seconds / whole * 100.0,
                                static_cast<double>(total.calls) / n, operation),
            .seconds = total.seconds / n,
            .gflops = total.demand.flops / total.seconds * 1e-9,
            .moved_bytes = total.demand.bytes / n};
    if (least > 0.0) {
      row.fraction_of_limit = least * 1e-9 / total.seconds;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<WorkerSpec> models_of_papers() {
  return {{.recipe = "switchhead/wt103_47m_dense_h10", .batch = 8},
          {.recipe = "switchhead/wt103_47m", .batch = 8},
          {.recipe = "switchhead/wt103_47m_dense_h10", .work = "decode"},
          {.recipe = "dcmha/405m_transformer_pp", .set = four_layers(), .work = "decode"},
          {.recipe = "dcmha/405m_dcformer_pp", .set = four_layers(), .work = "decode"}};
}

// Rows that a micro-batch of a run has; of whole length where a batch is so many tokens.
std::int64_t rows_of_batch(const config::Config& config) {
  return config.whole_sequences() / config.train.accumulate;
}

}  // namespace

std::vector<Row> profile(const BenchOptions& options) {
  profiled = at::Device(options.device);
  std::vector<WorkerSpec> specs;
  for (const std::string& name : options.configs) {
    const config::Config config = config::load_config(name, {"train.precision=" + options.precision});
    train::check_machine(config);
    specs.push_back({.recipe = name, .batch = rows_of_batch(config)});
  }
  if (specs.empty()) {
    specs = models_of_papers();
  }
  const Limits limits = machine_limits(options);
  std::vector<Row> rows;
  for (WorkerSpec& spec : specs) {
    spec.precision = options.precision;
    spec.device = options.device;
    const bool decode = spec.work == "decode";
    const std::string name =
        decode ? spec.recipe + ", a token" : fmt::format("{} B{}, a step", spec.recipe, spec.batch);
    const std::vector<Row> part = profile_of(name, spec.begin().work, options.repeats * (decode ? 8 : 1), limits);
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace headroom::bench
