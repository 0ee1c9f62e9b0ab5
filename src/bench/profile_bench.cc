// Where a training step's time goes: the time inside each operator that is not inside another, added up by name.
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "headroom/config/config.h"
#include "timing.h"
#include "training_step.h"

namespace headroom::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The open operators of this thread, each with the time that went to operators inside it.
struct Open : at::ObserverContext {
  std::string name;
  Clock::time_point start;
  double inside = 0.0;
  Open* outer = nullptr;
};
thread_local Open* innermost = nullptr;
std::map<std::string, double>* totals = nullptr;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto open = std::make_unique<Open>();
  open->name = function.name();
  open->outer = innermost;
  innermost = open.get();
  open->start = Clock::now();
  return open;
}

void end(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  auto* open = static_cast<Open*>(context);
  const double seconds = std::chrono::duration<double>(Clock::now() - open->start).count();
  innermost = open->outer;
  if (open->outer != nullptr) {
    open->outer->inside += seconds;
  }
  (*totals)[open->name] += seconds - open->inside;
}

}  // namespace

std::vector<Row> profile(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const auto& [recipe, batch] : {std::pair{"switchhead/wt103_47m_dense_h10", 8}, {"switchhead/wt103_47m", 8}}) {
    TrainingStep step(config::load_config(recipe).model, batch, options.precision);
    step();
    step();
    std::map<std::string, double> seconds;
    totals = &seconds;
    const at::CallbackHandle handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    double whole = 0.0;
    for (std::int64_t i = 0; i < options.repeats; ++i) {
      whole += seconds_of([&] { step(); });
    }
    at::removeCallback(handle);
    std::vector<std::pair<double, std::string>> by_time;
    for (const auto& [name, time] : seconds) {
      by_time.emplace_back(time, name);
    }
    std::sort(by_time.rbegin(), by_time.rend());
    by_time.resize(std::min<std::size_t>(by_time.size(), 16));
    const auto repeats = static_cast<double>(options.repeats);
    rows.push_back({.name = fmt::format("{} B{}", recipe, batch), .seconds = whole / repeats});
    for (const auto& [time, name] : by_time) {
      rows.push_back({.name = fmt::format("  {:4.1f}% {}", time / whole * 100.0, name), .seconds = time / repeats});
    }
  }
  return rows;
}

}  // namespace headroom::bench
