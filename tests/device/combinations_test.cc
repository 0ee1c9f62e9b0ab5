// Compares every legal combination of attention parts on the device with the CPU, forward and backward.
#include "engine/nn/combinations.h"

#include "engine/nn/layer.h"
#include "one_thread.h"

namespace headroom::device::combinations_test {

// Returns copies of the layer's parameters with another device or dtype.
nn::ParameterSource moved(const nn::Layer& layer, const at::TensorOptions& where) {
  std::vector<at::Tensor> all;
  for (const nn::Parameter& p : layer.parameters.in_creation_order()) {
    all.push_back(p.tensor.detach().to(where).requires_grad_(!p.buffer));
  }
  return nn::ParameterSource(std::move(all));
}

// The gradients of x and of all parameters that have one, and the output, joined on the CPU in float64.
struct Results {
  at::Tensor values;
  std::vector<bool> has;  // by gradient
};

// The output covers the last gradient.size(1) tokens.
Results results(const nn::Layer& layer, const at::Tensor& x, const at::Tensor& gradient) {
  const at::TensorOptions where = layer.parameters.all()[0].tensor.options().requires_grad(false);
  std::vector<at::Tensor> leaves = {x.to(where).requires_grad_(true)};
  for (const nn::Parameter& p : layer.parameters.all()) {
    leaves.push_back(p.tensor);
  }
  const at::Tensor out = layer.last(leaves[0], gradient.size(1));
  std::vector<at::Tensor> all = {out.detach().flatten()};
  Results found;
  for (const at::Tensor& t : torch::autograd::grad({out}, leaves, {gradient.to(where)}, false, false,
                                                   /*allow_unused=*/true)) {
    found.has.push_back(t.defined());
    if (t.defined()) {
      all.push_back(t.flatten());
    }
  }
  found.values = at::cat(all).to(at::kCPU, at::kDouble);
  return found;
}

void expect_the_cpus(const config::ModelOptions& model, const std::string& name) {
  at::manual_seed(3);
  const nn::Layer here(model.attention, nn::place_in(model), at::kDouble, /*noise=*/0.3);
  const at::Tensor x = at::randn({2, model.memory_length + model.context_length, model.d_model}, at::kDouble),
                   gradient = at::randn({2, model.context_length, model.d_model}, at::kDouble);
  const Results expected = results(here, x, gradient);
  const double scale = expected.values.abs().max().item<double>();
  // The limits cover rounding errors of 2^-53 and 2^-24, magnified by exp() of scores up to 50.
  for (const auto& [type, limit] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 5e-4}}) {
    const nn::Layer there(model.attention, nn::place_in(model), moved(here, at::TensorOptions(at::kCUDA).dtype(type)));
    const Results got = results(there, x, gradient);
    ASSERT_EQ(got.has, expected.has) << name;
    const double error = (got.values - expected.values).abs().max().item<double>();  // NaN if one is
    EXPECT_LE(error / scale, limit) << name << " in " << at::toString(type);
  }
}

TEST(Combinations, AllAgreeWithTheCpu) {
  int legal = 0;
  testing::for_products(testing::all_axes(), [&](const std::string& name, const config::ModelOptions& model) {
    if (testing::refusal(model).empty() && testing::has_widest_mask(model)) {
      ++legal;
      expect_the_cpus(model, name);
    }
  });
  RecordProperty("legal", legal);
  EXPECT_GT(legal, 150);
}

}  // namespace headroom::device::combinations_test
