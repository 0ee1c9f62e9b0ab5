// Schemas and stack conversions of argument structs.
#include "engine/ops/argument_struct.h"

#include <gtest/gtest.h>

namespace headroom::ops {
namespace argument_struct_test {

// Every kind of member that an operator with a derivative has.
struct Everything {
  at::Tensor q;
  OptionalTensor b;
  at::Tensor index;
  std::vector<at::Tensor> keys;
  std::vector<bool> wanted;
  std::int64_t step = 0, window = 3;
  double scale = 0.5;
  bool causal = true;
  std::string kind = "plain";
  template <class V>
  void visit(V& v) {
    v("q", q, "b", b);
    v.constant("index", index);
    v("keys", keys);
    v.needed("step", step);
    v.by_name();
    v("wanted", wanted, "window", window, "scale", scale);
    v.by_name();  // the second call has no effect
    v("causal", causal, "kind", kind);
  }
};

struct InPlace {
  std::vector<at::Tensor> parameters, gradients;
  template <class V>
  void visit(V& v) {
    v.changed("parameters", parameters);
    v.changed("gradients", gradients);
  }
};

struct Pair {
  at::Tensor o;
  OptionalTensor log_sum;
  std::vector<at::Tensor> more;
  template <class V>
  void visit(V& v) {
    v("o", o, "log_sum", log_sum, "more", more);
  }
};

TEST(ArgumentStruct, SchemaHasTypesNamesAndDefaults) {
  const std::string arguments =
      "Tensor q, Tensor? b=None, Tensor index, Tensor[]? keys=None, int step, *, bool[]? wanted=None, int window=3, "
      "float scale=0.5, bool causal=True, str kind=\"plain\"";
  EXPECT_EQ((schema_of<Everything, void>("op")), "op(" + arguments + ") -> ()");
  EXPECT_EQ((schema_of<Everything, at::Tensor>("op")), "op(" + arguments + ") -> (Tensor)");
  EXPECT_EQ((schema_of<InPlace, void>("op")), "op(Tensor(a!)[] parameters, Tensor(b!)[] gradients) -> ()");
  EXPECT_EQ((schema_of<Pair, Pair>("op")),
            "op(Tensor o, Tensor? log_sum=None, Tensor[]? more=None) -> (Tensor o, Tensor log_sum, Tensor[] more)");
  EXPECT_EQ((schema_of<Pair, Single>("op")),
            "op(Tensor o, Tensor? log_sum=None, Tensor[]? more=None) -> (Tensor result)");
}

TEST(ArgumentStruct, SlotsAreTheTensorsWithADerivative) {
  Everything e;
  e.q = at::zeros({1});
  e.index = at::zeros({2});
  e.keys = {at::zeros({3}), at::zeros({4})};
  const std::vector<at::Tensor> all = slots(e);
  ASSERT_EQ(all.size(), 4u);  // q, b, which is absent, and both keys; not the index, which has no derivative
  EXPECT_EQ(all[0].numel(), 1);
  EXPECT_FALSE(all[1].defined());
  EXPECT_EQ(all[3].numel(), 4);
}

TEST(ArgumentStruct, ArgumentsComeBackFromTheStack) {
  Everything e;
  e.q = at::full({1}, 1.0);
  e.index = at::full({1}, 2.0);
  e.keys = {at::full({1}, 3.0)};
  e.wanted = {true, false};
  e.step = 7;
  e.scale = 0.25;
  e.causal = false;
  e.kind = "other";
  Stack stack = {at::full({1}, -1.0)};  // must stay on the stack
  push_arguments(stack, e);
  EXPECT_EQ(stack.size(), 11u);
  const auto got = take_arguments<Everything>(stack);
  EXPECT_EQ(stack.size(), 1u);
  EXPECT_TRUE(got.q.equal(e.q) && got.index.equal(e.index) && got.keys[0].equal(e.keys[0]));
  EXPECT_FALSE(got.b.has_value());
  EXPECT_EQ(got.wanted, e.wanted);
  EXPECT_EQ(got.step, 7);
  EXPECT_EQ(got.scale, 0.25);
  EXPECT_FALSE(got.causal);
  EXPECT_EQ(got.kind, "other");
}

TEST(ArgumentStruct, AListMayBeAbsent) {
  Stack stack = {at::zeros({1}), c10::IValue(), c10::IValue()};
  const auto got = take_arguments<Pair>(stack);
  EXPECT_TRUE(got.o.defined());
  EXPECT_FALSE(got.log_sum.has_value());
  EXPECT_TRUE(got.more.empty());
}

TEST(ArgumentStruct, ResultsComeBackFromTheStack) {
  for (const bool there : {true, false}) {
    Pair results{at::full({2}, 1.0), there ? OptionalTensor(at::full({3}, 2.0)) : std::nullopt, {at::zeros({4})}};
    Stack stack;
    push_results(stack, results);
    ASSERT_EQ(stack.size(), 3u);  // an absent one as an undefined tensor
    const auto got = take_results<Pair>(stack);
    EXPECT_TRUE(got.o.equal(results.o));
    EXPECT_EQ(got.log_sum.has_value(), there);
    EXPECT_EQ(got.more[0].numel(), 4);
  }
}

TEST(ArgumentStruct, GradAndInputsHoldsBoth) {
  EXPECT_EQ((schema_of<GradAndInputs<Pair>, void>("op")),
            "op(Tensor grad, Tensor o, Tensor? log_sum=None, Tensor[]? more=None) -> ()");
}

}  // namespace argument_struct_test
}  // namespace headroom::ops
