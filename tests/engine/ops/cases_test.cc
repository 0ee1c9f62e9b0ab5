// Every case of every operator's table: the fused versions against the reference in float64, result and all gradients,
// on every device, each backend by itself.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "engine/ops/backend.h"
#include "gradients.h"
#include "guarded_memory.h"
#include "headroom/core/error.h"
#include "one_thread.h"
#include "operator_cases.h"

namespace headroom::ops {
namespace cases_test {

using testing::Evaluated;
using testing::GuardedMemory;
using testing::OperatorCase;

std::vector<at::Device> devices() {
  std::vector<at::Device> all = {at::kCPU};
  if (at::hasCUDA()) {
    all.emplace_back(at::kCUDA);
  }
  return all;
}

// While it lives, the others of the list refuse.
class OnlyBackend {
 public:
  OnlyBackend(BackendList& list, const std::string& name) : list_(list) { list.restrict_to(name); }
  ~OnlyBackend() { list_.restrict_to(""); }
  OnlyBackend(const OnlyBackend&) = delete;
  OnlyBackend& operator=(const OnlyBackend&) = delete;

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

// Some gradients vanish by cancellation, a prior's where it is the same for all keys: errors count relative to the
// tensor's largest number, and to `share` of the largest of all gradients at least.
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

// Each backend that takes the problem is near the reference. Why all refuse it, if they do.
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

INSTANTIATE_TEST_SUITE_P(Operators, Cases, ::testing::ValuesIn(testing::operator_cases()), test_name);

TEST(CaseTables, EveryOperatorWithBackendsHasOne) {
  std::set<std::string> with_cases, with_backends;
  for (const OperatorCase& c : testing::operator_cases()) {
    with_cases.insert(c.op);
  }
  for (const BackendList* list : backend_lists()) {
    if (!list->op().starts_with("toy")) {  // of other tests
      with_backends.insert(list->op());
    }
  }
  EXPECT_EQ(with_cases, with_backends);
}

TEST(CaseTables, WhatNoBackendTakesHasTheReference) {
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

// Of each operator the first case with numbers in it, which no backend refuses for another reason than their type.
Problem first_problem(const std::string& op, const Setting& setting) {
  for (const OperatorCase& c : testing::operator_cases()) {
    if (c.op == op) {
      const Problem problem = c.problem(setting);
      if (problem.leaves[0].numel() > 0) {
        return problem;
      }
    }
  }
  return {};
}

TEST(CaseTables, BackendsTakeTheNumbersThatTheySay) {
  const std::set<std::string> inside = {"head_map_factors", "row_terms"};  // where the reference takes over silently
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
  EXPECT_EQ(GuardedMemory::damaged(), 1);  // that one again, as it went
  EXPECT_EQ(GuardedMemory::damaged(), 0);
}

}  // namespace cases_test
}  // namespace headroom::ops
