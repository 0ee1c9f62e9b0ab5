// Compares the fused version of every operator case with the float64 reference: the result and all gradients, on every
// device and with each backend alone.
#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "attention_cases.h"
#include "dropout_cases.h"
#include "expert_linear_cases.h"
#include "gated_delta_cases.h"
#include "gradients.h"
#include "head_map_cases.h"
#include "linear_attention_cases.h"
#include "linear_cases.h"
#include "linear_cross_entropy_cases.h"
#include "one_thread.h"
#include "optimizer_cases.h"

namespace headroom::ops::cases_test {

using testing::Evaluated;

// Allocates CPU tensors filled with NaN between guards, which are checked when a tensor is freed.
class GuardedAllocator : public c10::Allocator {
 public:
  static GuardedAllocator& instance() {
    static GuardedAllocator* all = new GuardedAllocator;  // never destroyed, because tensors may outlive it
    return *all;
  }

  c10::DataPtr allocate(std::size_t n) override {
    const std::size_t whole = (n + 3 * kGuard - 1) / kGuard * kGuard;
    auto* base = static_cast<unsigned char*>(std::aligned_alloc(kGuard, whole));
    std::memset(base, kNan, whole);
    const std::lock_guard lock(mutex_);
    sizes_[base] = n;
    return {base + kGuard, base + kGuard, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t n) const override { default_copy_data(to, from, n); }

  // Returns the number of tensors whose guards were damaged since the last call.
  int damaged() {
    const std::lock_guard lock(mutex_);
    for (const auto& [base, n] : sizes_) {
      damaged_ += broken(base, n) ? 1 : 0;
    }
    return std::exchange(damaged_, 0);
  }

 private:
  static constexpr std::size_t kGuard = 64;    // in bytes: a cache line or an AVX-512 vector
  static constexpr unsigned char kNan = 0xFF;  // repeated, it is NaN in float64, float32 and bfloat16

  static bool broken(const unsigned char* base, std::size_t n) {
    const std::size_t whole = (n + 3 * kGuard - 1) / kGuard * kGuard;
    const auto whole_guard = [](const unsigned char* begin, const unsigned char* end) {
      return std::all_of(begin, end, [](unsigned char byte) { return byte == kNan; });
    };
    return !whole_guard(base, base + kGuard) || !whole_guard(base + kGuard + n, base + whole);
  }
  static void release(void* data) {
    GuardedAllocator& self = instance();
    const std::lock_guard lock(self.mutex_);
    const auto found = self.sizes_.find(static_cast<unsigned char*>(data) - kGuard);
    self.damaged_ += broken(found->first, found->second) ? 1 : 0;
    std::free(found->first);
    self.sizes_.erase(found);
  }

  std::mutex mutex_;
  std::map<unsigned char*, std::size_t> sizes_;
  int damaged_ = 0;
};

// Makes torch use GuardedAllocator until the object is destroyed.
class GuardedMemory {
 public:
  GuardedMemory() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(&GuardedAllocator::instance(), kFirst); }
  ~GuardedMemory() { c10::SetCPUAllocator(before_, kFirst); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  static int damaged() { return GuardedAllocator::instance().damaged(); }

 private:
  static constexpr std::uint8_t kFirst = 255;
  c10::Allocator* before_;
};

struct OperatorCase {
  std::string op, name;
  std::function<Problem(const Setting&)> problem;
  std::vector<Precision> precisions;
  double share = 0.0;  // least scale of a gradient's error, as a share of the largest gradient
};

void PrintTo(const OperatorCase& c, std::ostream* to) {
  *to << c.op << ": " << c.name;
}

template <class Case>
void add_cases(std::vector<OperatorCase>& all, const char* op, const std::vector<Case>& table, double share = 0.0) {
  for (const Case& c : table) {
    all.push_back({op, c.name(), [c](const Setting& setting) { return c.problem(setting); }, c.precisions(), share});
  }
}

std::vector<OperatorCase> operator_cases() {
  std::vector<OperatorCase> all;
  add_cases(all, "adamw", adamw_cases());
  add_cases(all, "attention", attention_cases(Role::tested), 0.1);
  add_cases(all, "attention", attention_cases(Role::bfloat16), 1.0);
  add_cases(all, "attention_sequences", sequences_cases());
  add_cases(all, "dropout", dropout_cases());
  add_cases(all, "expert_linear", expert_linear_cases());
  add_cases(all, "gated_delta", gated_delta_cases());
  add_cases(all, "head_map_factors", factors_cases());
  add_cases(all, "linear", linear_cases());
  add_cases(all, "linear_attention", linear_attention_cases());
  add_cases(all, "linear_cross_entropy", cross_entropy_cases());
  add_cases(all, "muon", muon_cases());
  add_cases(all, "row_terms", row_terms_cases());
  add_cases(all, "short_convolution", short_convolution_cases());
  return all;
}

std::vector<at::Device> devices() {
  return at::hasCUDA() ? std::vector<at::Device>{at::kCPU, at::kCUDA} : std::vector<at::Device>{at::kCPU};
}

// Restricts a list to one backend until the object is destroyed.
class OnlyBackend {
 public:
  OnlyBackend(BackendList& list, const std::string& name) : list_(list) { list.restrict_to(name); }
  ~OnlyBackend() { list_.restrict_to(""); }
  OnlyBackend(const OnlyBackend&) = delete;

 private:
  BackendList& list_;
};

Evaluated evaluate(const Problem& problem, const std::vector<at::Tensor>& leaves, Implementation implementation) {
  if (problem.differentiable) {
    return testing::evaluate([&](const auto& x) { return problem.run(x, implementation); }, leaves);
  }
  const at::NoGradGuard no_grad;
  return {problem.run(leaves, implementation), {}};
}

double largest(const at::Tensor& t) {
  return t.numel() == 0 ? 0.0 : t.abs().max().item<double>();
}

// Errors are relative to the tensor's largest element. For gradients, the scale is at least `share` of the largest of
// all gradients, because some gradients vanish by cancellation, such as a prior's that is equal for all keys.
void expect_near(const Evaluated& got, const Evaluated& exact, double bound, double share) {
  EXPECT_LE(testing::relative_error(got.value, exact.value), bound) << "value";
  double all = 0.0;
  for (const at::Tensor& gradient : exact.gradients) {
    all = std::max(all, largest(gradient));
  }
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    ASSERT_TRUE(got.gradients[i].defined()) << "gradient " << i;
    const double allowed = bound * std::max(largest(exact.gradients[i]), share * all);
    EXPECT_LE(largest(got.gradients[i].to(at::kDouble) - exact.gradients[i]), allowed) << "gradient " << i;
  }
}

// Compares each backend that accepts the problem with the reference. Returns the refusals if all backends refuse.
std::string compare_backends(const OperatorCase& c, const Precision& precision, at::Device device) {
  at::manual_seed(1);
  const Problem problem = c.problem({precision.type, device});
  const Evaluated exact = evaluate(problem, testing::in_double(problem.leaves), Implementation::reference);
  int taken = 0;
  std::string refusals;
  for (BackendList* list : backend_lists()) {
    for (const BackendTraits& backend : list->traits()) {
      if (list->op() != c.op || backend.device != device.type()) {
        continue;
      }
      SCOPED_TRACE(fmt::format("backend {}", backend.name));
      const OnlyBackend only(*list, backend.name);
      try {
        expect_near(evaluate(problem, problem.leaves, Implementation::fused), exact, precision.bound, c.share);
        ++taken;
      } catch (const UserError& refusal) {
        refusals += fmt::format("{}\n", refusal.what());
      }
    }
  }
  return taken > 0 ? "" : "no backend takes it\n" + refusals;
}

class Cases : public ::testing::TestWithParam<OperatorCase> {};

TEST_P(Cases, FusedEqualsTheReference) {
  const OperatorCase& c = GetParam();
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SCOPED_TRACE(fmt::format("repeat: ops_test --gtest_filter={}.{}", test->test_suite_name(), test->name()));
  const GuardedMemory guarded;
  for (const at::Device device : devices()) {
    for (const Precision& precision : c.precisions) {
      SCOPED_TRACE(fmt::format("{} of {}", at::toString(precision.type), device.str()));
      const std::string refusals = compare_backends(c, precision, device);
      EXPECT_TRUE(refusals.empty() || !device.is_cpu()) << refusals;
    }
  }
  EXPECT_EQ(GuardedMemory::damaged(), 0) << "tensors were written beyond their ends";
}

std::string test_name(const ::testing::TestParamInfo<OperatorCase>& of) {
  std::string name = of.param.op + "_" + of.param.name;
  const auto is_not_part = [](unsigned char c) { return std::isalnum(c) == 0; };
  std::replace_if(name.begin(), name.end(), is_not_part, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Operators, Cases, ::testing::ValuesIn(operator_cases()), test_name);

TEST(CaseTables, EveryOperatorWithBackendsHasOne) {
  std::set<std::string> with_cases, with_backends;
  for (const OperatorCase& c : operator_cases()) {
    with_cases.insert(c.op);
  }
  for (const BackendList* list : backend_lists()) {
    if (!list->op().starts_with("toy")) {  // another test's operator
      with_backends.insert(list->op());
    }
  }
  EXPECT_EQ(with_cases, with_backends);
}

TEST(CaseTables, CasesWithoutABackendUseTheReference) {
  int compared = 0;
  for (const AttentionCase& c : attention_cases(Role::reference_only)) {
    SCOPED_TRACE(c.name());
    at::manual_seed(1);
    const Problem problem = c.problem({});
    EXPECT_THROW(problem.run(problem.leaves, Implementation::fused), UserError);
    expect_near(evaluate(problem, problem.leaves, Implementation::automatic),
                evaluate(problem, testing::in_double(problem.leaves), Implementation::reference),
                c.precisions()[0].bound, 0.1);
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

// Returns the operator's first case that is not empty, so that backends can refuse only its dtype.
Problem first_problem(const std::string& op, const Setting& setting) {
  for (const OperatorCase& c : operator_cases()) {
    if (c.op == op) {
      const Problem problem = c.problem(setting);
      if (problem.leaves[0].numel() > 0) {
        return problem;
      }
    }
  }
  return {};
}

TEST(CaseTables, BackendsAcceptTheDtypesTheyDeclare) {
  const std::set<std::string> inside = {"head_map_factors", "row_terms"};  // they silently fall back to the reference
  int taken = 0, refused = 0;
  for (BackendList* list : backend_lists()) {
    for (const BackendTraits& backend : list->traits()) {
      if (backend.device != at::kCPU || list->op().starts_with("toy")) {
        continue;
      }
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
        const Problem problem = first_problem(list->op(), {type});
        const auto run = [&] { return evaluate(problem, problem.leaves, Implementation::fused).value; };
        const OnlyBackend only(*list, backend.name);
        if (backend.takes(type)) {
          EXPECT_TRUE(run().isfinite().all().item<bool>()) << list->op() << " of " << type;
          ++taken;
        } else if (!inside.contains(list->op())) {
          EXPECT_THROW(run(), UserError) << list->op() << " of " << type;
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(taken, 20);
  EXPECT_GT(refused, 5);
}

TEST(GuardedMemory, ShowsWhatIsReadAndWrittenBeyondATensor) {
  {
    const GuardedMemory guarded;
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      EXPECT_TRUE(at::empty({5}, type).isnan().all().item<bool>());
    }
    const at::Tensor t = at::empty({5});
    float* numbers = t.mutable_data_ptr<float>();
    EXPECT_TRUE(std::isnan(numbers[5]) && std::isnan(numbers[-1]));
    EXPECT_EQ(GuardedMemory::damaged(), 0);
    numbers[5] = 0.0F;
    EXPECT_EQ(GuardedMemory::damaged(), 1);
  }
  EXPECT_EQ(GuardedMemory::damaged(), 1);  // the same tensor, reported when it was freed
  EXPECT_EQ(GuardedMemory::damaged(), 0);
}

}  // namespace headroom::ops::cases_test
