// Runs tests/golden/cases: every family and every implementation, in single and double precision.
#include <gtest/gtest.h>

#include "golden/case.h"
#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"
#include "one_thread.h"
#include "tiny/folder.h"

namespace headroom::golden::cases_test {

namespace fs = std::filesystem;

const fs::path kCases = fs::path(HEADROOM_SOURCE_DIR) / "tests" / "golden" / "cases";

// Returns the sorted names of the cases, such as "mgk/own_dot_bidirectional".
std::vector<std::string> cases() {
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(kCases)) {
    if (entry.path().extension() == ".safetensors") {
      found.push_back(fs::relative(entry.path(), kCases).replace_extension().string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

CaseOutcome run(const std::string& name, Implementation implementation, at::ScalarType dtype) {
  return run_cases({(kCases / name).string() + ".safetensors"}, {.implementation = implementation, .dtype = dtype})[0];
}

// These cases test only the router, which calls no operator.
const std::set<std::string> kWithoutOperators = {"moa/loss_combined", "moa/loss_cv", "moa/loss_switch", "moa/loss_z"};

// Returns the implementation that must run unless the reference is requested.
const char* fastest(const std::string& name) {
  return kWithoutOperators.contains(name) ? "reference" : "fused";
}

class Cases : public ::testing::TestWithParam<std::string> {};

TEST_P(Cases, InSinglePrecision) {
  for (const Implementation implementation :
       {Implementation::automatic, Implementation::reference, Implementation::fused}) {
    const CaseOutcome outcome = run(GetParam(), implementation, at::kFloat);
    EXPECT_TRUE(outcome.passed) << outcome_line(outcome);
    EXPECT_EQ(outcome.implementation, implementation == Implementation::reference ? "reference" : fastest(GetParam()));
  }
}

TEST_P(Cases, InDoublePrecision) {
  for (const Implementation implementation : {Implementation::automatic, Implementation::reference}) {
    const CaseOutcome outcome = run(GetParam(), implementation, at::kDouble);
    EXPECT_TRUE(outcome.passed) << outcome_line(outcome);
  }
  // Fused operators do not support double precision.
  const CaseOutcome outcome = run(GetParam(), Implementation::fused, at::kDouble);
  EXPECT_EQ(outcome.passed, kWithoutOperators.contains(GetParam())) << outcome_line(outcome);
  EXPECT_TRUE(outcome.passed || outcome.reason.find("float64") != std::string::npos) << outcome_line(outcome);
}

INSTANTIATE_TEST_SUITE_P(Golden, Cases, ::testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

TEST(GoldenCases, AreComplete) {
  std::map<std::string, int> found;
  for (const std::string& name : cases()) {
    ++found[fs::path(name).parent_path().string()];
  }
  const std::map<std::string, int> expected = {
      {"adaptive_softmax", 1}, {"block", 3},   {"classifier", 2}, {"dcmha", 16}, {"dense", 4},     {"expert_ffn", 1},
      {"language_model", 3},   {"linear", 10}, {"mgk", 22},       {"moa", 11},   {"switchhead", 6}};
  EXPECT_EQ(found, expected);
}

// The case gives the slot of each routed expert, and the loss must count these slots instead of the layer's order.
TEST(GoldenCases, WholeRoutedLayersCountTheGivenSlots) {
  const fs::path original = kCases / "moa" / "self_bidirectional";
  const tiny::Folder folder;
  const SafetensorsFile file(original.string() + ".safetensors");
  const Case read = read_case(original.string() + ".safetensors", {});
  const at::Tensor index = read.at("mid.select.index");
  const std::int64_t batch = index.size(0), k = index.size(2);
  const at::Tensor prob = read.at("mid.select.prob").to(at::kDouble), slots = index.flip(2).to(at::kInt);
  const std::int64_t n_experts = prob.size(2);
  const auto loss = [&](const at::Tensor& order) {
    const at::Tensor counts = nn::slot_counts(order.reshape({-1, k}).to(at::kLong), batch, n_experts);
    return nn::switch_loss(prob.view({-1, n_experts}), counts).to(at::kFloat);
  };
  const at::Tensor expected = loss(slots);
  ASSERT_GT((expected - loss(index)).abs().item<float>(), 1e-3) << "the order must matter";
  for (const bool given : {true, false}) {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : file.tensors()) {
      writer.add(name, tensor.dtype, tensor.shape, tensor.data);
    }
    const auto bytes = [](const at::Tensor& t) {
      return std::span(static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes());
    };
    writer.add("aux.switch_slots", DType::f32, {}, bytes(expected));
    if (given) {
      writer.add("in.slot_index", DType::i32, slots.sizes().vec(), bytes(slots));
    }
    writer.set_metadata("case", file.metadata_at("case"));
    writer.write(folder / "slots.safetensors");
    for (const Implementation implementation : {Implementation::automatic, Implementation::reference}) {
      const CaseOutcome outcome = run_cases({folder.path()}, {.implementation = implementation})[0];
      EXPECT_EQ(outcome.passed, given) << outcome_line(outcome);
      EXPECT_TRUE(given || outcome.worst_tensor == "aux.switch_slots") << outcome_line(outcome);
    }
  }
}

}  // namespace headroom::golden::cases_test
