// Profiles training steps and decoded tokens by operator: the time in each operator without the operators it calls,
// summed by name, against the time that its memory traffic and matmuls take at the machine's limits.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "foundation/core/transformed.h"
#include "timing.h"
#include "workload.h"

namespace headroom::bench {
namespace {

void each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  }
}

// Returns the bytes in memory, which are fewer than the elements suggest for an expanded tensor.
double bytes_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) {
    return 0.0;
  }
  return std::min(static_cast<double>(tensor.nbytes()), static_cast<double>(tensor.storage().nbytes()));
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().data() : nullptr;
}

// The arguments of a call, accessed by name through the operator's schema.
class Arguments {
 public:
  explicit Arguments(const at::RecordFunction& function)
      : name_(*function.operator_name()), values_(function.inputs()) {}
  // Returns the index of the argument with this name.
  std::size_t place(const char* name) const {
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name_.name.c_str(), "");
    return static_cast<std::size_t>(op.schema().argumentIndexWithName(name).value());
  }
  const at::Tensor& tensor(std::size_t i) const { return values_.at(i).toTensor(); }
  double size(std::size_t i, std::int64_t axis) const { return static_cast<double>(tensor(i).size(axis)); }
  double numel(std::size_t i) const { return static_cast<double>(tensor(i).numel()); }
  bool given(std::size_t i) const { return values_.at(i).isTensor() && tensor(i).defined(); }
  bool flag(std::size_t i) const { return values_.at(i).toBool(); }
  std::int64_t integer(std::size_t i) const { return values_.at(i).toInt(); }
  // Returns the number of elements of all tensors in a list.
  double numel_of_all(std::size_t i) const {
    double sum = 0.0;
    each_tensor(values_.at(i), [&](const at::Tensor& tensor) { sum += static_cast<double>(tensor.numel()); });
    return sum;
  }
  std::size_t count(std::size_t i) const {
    return values_.at(i).isTensorList() ? values_.at(i).toTensorVector().size() : 0;
  }

 private:
  c10::OperatorName name_;
  c10::ArrayRef<const c10::IValue> values_;
};

// Counts matmuls over all visible query-key pairs. Forward: one per key, one for the relative term, one for the values.
// Backward: the scores again, and two for each of these.
double attention_flops(const Arguments& a, bool backward) {
  const at::Tensor& q = a.tensor(a.place("q"));
  const std::int64_t t = q.size(2), s = a.tensor(a.place("k")).size(2), window = a.integer(a.place("window"));
  const bool causal = a.flag(a.place("causal"));
  double pairs = static_cast<double>(t) * static_cast<double>(s);
  if (causal) {
    pairs = 0.0;
    for (std::int64_t i = 0; i < t; ++i) {
      const std::int64_t seen = s - t + i + 1;
      pairs += static_cast<double>(window > 0 ? std::min(window, seen) : seen);
    }
  }
  const double keys = 1.0 + static_cast<double>(a.count(a.place("more_keys")));
  const double scores = keys + (a.given(a.place("r")) ? 1.0 : 0.0);
  const double products = backward ? 3.0 * scores + 2.0 : scores + 1.0;
  return 2.0 * products * pairs * static_cast<double>(q.size(0) * q.size(1) * q.size(3));
}

double linear_flops(const Arguments& a, std::size_t x) {
  return 2.0 * a.numel(x) / a.size(x, -1) * a.numel(x + 1);
}

double expert_flops(const Arguments& a, std::size_t input) {
  return 2.0 * a.numel(input + 2) * a.size(input + 1, -1) * a.size(input + 1, -2);
}

double matmul_flops(const at::RecordFunction& function) {
  using Count = double (*)(const Arguments&);
  static const std::map<std::string, Count> kCounts = {
      {"aten::mm", [](const Arguments& a) { return 2.0 * a.numel(0) * a.size(1, -1); }},
      {"aten::bmm", [](const Arguments& a) { return 2.0 * a.numel(0) * a.size(1, -1); }},
      {"aten::addmm", [](const Arguments& a) { return 2.0 * a.numel(1) * a.size(2, -1); }},
      {"aten::baddbmm", [](const Arguments& a) { return 2.0 * a.numel(1) * a.size(2, -1); }},
      {"mkldnn::_linear_pointwise", [](const Arguments& a) { return 2.0 * a.numel(0) * a.size(1, 0); }},
      {"headroom::linear_fused", [](const Arguments& a) { return linear_flops(a, 0); }},
      {"headroom::linear_fused_backward", [](const Arguments& a) { return 2.0 * linear_flops(a, 1); }},
      {"headroom::expert_linear_fused", [](const Arguments& a) { return expert_flops(a, 0); }},
      {"headroom::expert_linear_fused_backward", [](const Arguments& a) { return 2.0 * expert_flops(a, 1); }},
      {"headroom::head_map_factors_fused",
       [](const Arguments& a) {
         return 2.0 * a.size(0, 0) * (a.numel_of_all(1) + a.numel_of_all(2) + a.numel_of_all(3));
       }},
      {"headroom::linear_cross_entropy_fused",
       [](const Arguments& a) { return (a.flag(4) ? 6.0 : 2.0) * a.numel(0) * a.size(1, -1); }},
      {"headroom::attention_fused", [](const Arguments& a) { return attention_flops(a, /*backward=*/false); }},
      {"headroom::attention_fused_backward", [](const Arguments& a) { return attention_flops(a, /*backward=*/true); }}};
  const auto found = kCounts.find(function.name());
  return found == kCounts.end() ? 0.0 : found->second(Arguments(function));
}

}  // namespace

Demand& Demand::operator+=(const Demand& other) {
  bytes += other.bytes;
  flops += other.flops;
  return *this;
}

Demand& Demand::operator-=(const Demand& other) {
  bytes -= other.bytes;
  flops -= other.flops;
  return *this;
}

Call::Call(const at::RecordFunction& begun) : flops_(matmul_flops(begun)) {
  const std::string name = begun.name();
  in_place_ = name.ends_with("_") || name.ends_with("_out");
  const bool overwrites = name == "aten::fill_" || name == "aten::zero_" || name == "aten::copy_";
  for (const c10::IValue& input : begun.inputs()) {
    each_tensor(input, [&](const at::Tensor& tensor) {
      storages_.push_back(storage_of(tensor));
      read_ += bytes_of(tensor);
      first_ = first_ == 0.0 && !overwrites ? bytes_of(tensor) : first_;
    });
  }
}

Demand Call::end(const at::RecordFunction& ended) const {
  double written = 0.0;
  for (const c10::IValue& output : ended.outputs()) {
    each_tensor(output, [&](const at::Tensor& tensor) {
      const bool is_new = std::ranges::find(storages_, storage_of(tensor)) == storages_.end();
      written += is_new ? bytes_of(tensor) : 0.0;
    });
  }
  const bool only_allocates = std::string_view(ended.name()).find("empty") != std::string_view::npos;
  Demand demand{.flops = flops_};
  if (in_place_) {
    demand.bytes = read_ + first_;
  } else if (written > 0.0 && !only_allocates) {
    demand.bytes = read_ + written;
  }
  return demand;
}

namespace {

using Clock = std::chrono::steady_clock;

// A running operator of this thread, with the accumulated time of the operators that it calls.
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

// Returns a row for the whole workload, then rows for the operators that take most of its time.
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
  std::ranges::sort(by_time, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
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

std::vector<WorkloadSpec> models_of_papers() {
  return {{.recipe = "switchhead/wt103_47m_dense_h10", .batch = 8},
          {.recipe = "switchhead/wt103_47m", .batch = 8},
          {.recipe = "switchhead/wt103_47m_dense_h10", .work = "decode"},
          {.recipe = "dcmha/405m_transformer_pp", .set = four_layers(), .work = "decode"},
          {.recipe = "dcmha/405m_dcformer_pp", .set = four_layers(), .work = "decode"}};
}

}  // namespace

std::vector<Row> profile(const BenchOptions& options) {
  profiled = at::Device(options.device);
  std::vector<WorkloadSpec> specs =
      transformed(options.configs, [&](const std::string& name) { return training_spec(name, options); });
  if (specs.empty()) {
    specs = models_of_papers();
  }
  const Limits limits = machine_limits(options);
  std::vector<Row> rows;
  for (WorkloadSpec& spec : specs) {
    spec.precision = options.precision;
    spec.device = options.device;
    const bool decode = spec.work == "decode";
    const std::string name =
        decode ? spec.recipe + ", a token" : fmt::format("{} B{}, a step", spec.recipe, spec.batch);
    std::vector<Row> part = profile_of(name, spec.begin(spec.model()).work, options.repeats * (decode ? 8 : 1), limits);
    if (!options.configs.empty()) {  // one after the other, not in turn as other benchmarks
      part.front().ratio_to_reference = (rows.empty() ? part : rows).front().seconds / part.front().seconds;
    }
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace headroom::bench
