// Tests which of several backends runs, with a toy operator.
#include "engine/ops/backend.h"

#include <gtest/gtest.h>

namespace headroom::ops::backend_test {

struct Toy {
  at::Tensor x;
};

template <int kResult>
at::Tensor run_toy(const Toy& in) {
  return at::full_like(in.x, kResult);
}
std::string even_only(const Toy& in) {
  return in.x.numel() % 2 == 0 ? "" : "an odd number of elements";
}
std::string few_only(const Toy& in) {
  return in.x.numel() < 8 ? "" : "many elements";
}

// "second" and "also second" have the same rank, so their names order them. Backends are added in another order than
// their ranks.
void add_all(Backends<Toy>& toy) {
  toy.add({{"last", at::kCPU, 9, any_type}, few_only, run_toy<4>});
  toy.add({{"second", at::kCPU, 5, float32_or_bfloat16}, few_only, run_toy<3>});
  toy.add({{"first", at::kCPU, 1, float32_or_bfloat16}, even_only, run_toy<1>});
  toy.add({{"elsewhere", at::kCUDA, 0, any_type}, never_refuses, run_toy<5>});
  toy.add({{"also second", at::kCPU, 5, all_but_float64}, even_only, run_toy<2>});
}

// Returns the value that the chosen backend writes, or 0 for the reference.
int chosen(const Backends<Toy>& toy, const at::Tensor& x, Implementation wanted = Implementation::automatic) {
  const auto* backend = toy.choose(wanted, x, {x});
  return backend == nullptr ? 0 : backend->run({x})[0].item<int>();
}

TEST(Backends, TheFirstThatDoesNotRefuseRuns) {
  Backends<Toy> toy("toy");
  add_all(toy);
  EXPECT_EQ(chosen(toy, at::zeros({2})), 1);
  EXPECT_EQ(chosen(toy, at::zeros({2}), Implementation::fused), 1);
  EXPECT_EQ(chosen(toy, at::zeros({2}), Implementation::reference), 0);
  EXPECT_EQ(chosen(toy, at::zeros({2}, at::kHalf)), 2);    // "first" does not support the dtype
  EXPECT_EQ(chosen(toy, at::zeros({3})), 3);               // "first" and "also second" refuse the size
  EXPECT_EQ(chosen(toy, at::zeros({3}, at::kDouble)), 4);  // only "last" supports the dtype
  EXPECT_EQ(chosen(toy, at::zeros({9})), 0);
}

TEST(Backends, AllReasonsAreGivenIfFusedWasRequested) {
  Backends<Toy> toy("toy");
  const auto complaint = [&](const at::Tensor& x) -> std::string {
    try {
      toy.choose(Implementation::fused, x, {x});
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(complaint(at::zeros({9})), "toy: no fused implementation here: no backend for device cpu");
  add_all(toy);
  EXPECT_EQ(complaint(at::zeros({9}, at::kDouble)),
            "toy: no fused implementation here: first: float64 is not supported; also second: float64 is not "
            "supported; second: float64 is not supported; last: many elements");
}

TEST(Backends, TheRecordNamesTheBackendThatRan) {
  Backends<Toy> toy("toy");
  add_all(toy);
  reset_implementation_counts();
  for (const std::int64_t n : {2, 4, 3, 9}) {
    chosen(toy, at::zeros({n}));
  }
  EXPECT_EQ(toy.choose_internal(Implementation::automatic, at::zeros({2}), {at::zeros({2})})->traits.name, "first");
  EXPECT_EQ(toy.choose_internal(Implementation::reference, at::zeros({2}), {at::zeros({2})}), nullptr);
  const ImplementationCounts made = implementation_counts().at("toy");
  EXPECT_EQ(made.fused, 3);
  EXPECT_EQ(made.reference, 1);
  EXPECT_EQ(made.backends, (std::map<std::string, std::int64_t>{{"first", 2}, {"second", 1}}));
  EXPECT_EQ(made.refusal,
            "first: an odd number of elements; also second: an odd number of elements; second: many elements; last: "
            "many elements");
}

TEST(Backends, ASecondOfTheSameNameIsRefused) {
  Backends<Toy> toy("toy");
  add_all(toy);
  EXPECT_THROW(toy.add({{"first", at::kCPU, 7, any_type}, never_refuses, run_toy<6>}), Error);
  EXPECT_NO_THROW(toy.add({{"first", at::kCUDA, 7, any_type}, never_refuses, run_toy<6>}));
}

TEST(Backends, OneCanBeQueriedAlone) {
  Backends<Toy> toy("toy");
  add_all(toy);
  toy.restrict_to("last");
  EXPECT_EQ(chosen(toy, at::zeros({2})), 4);
  EXPECT_EQ(chosen(toy, at::zeros({9})), 0);
  toy.restrict_to("");
  EXPECT_EQ(chosen(toy, at::zeros({2})), 1);
}

}  // namespace headroom::ops::backend_test
