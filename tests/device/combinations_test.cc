// Every legal combination of attention parts on the device, forward and backward, against the CPU.
#include "engine/nn/combinations.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "headroom/nn/attention.h"
#include "one_thread.h"

namespace headroom::device {
namespace combinations_test {

class Layer {
 public:
  Layer(const config::ModelOptions& m, const nn::ParameterSource& source)
      : memory_(m.memory_length),
        attention_(m.attention,
                   {.d_model = m.d_model,
                    .n_layers = 1,
                    .causal = m.kind == config::ModelKind::language_model,
                    .window = m.attention.window,
                    .context_length = m.context_length,
                    .memory_length = m.memory_length},
                   nn::Builder(parameters_, source)) {}

  // The same parameters on another device or of another dtype.
  nn::ParameterSource moved_to(const at::TensorOptions& where) const {
    std::vector<at::Tensor> all;
    for (const nn::Parameter& p : parameters_.in_creation_order()) {
      all.push_back(p.tensor.detach().to(where).requires_grad_(!p.buffer));
    }
    return nn::ParameterSource(std::move(all));
  }
  // Some parameters are initialised to 0; perturbed, every term matters.
  void perturb() {
    const at::NoGradGuard no_grad;
    for (const nn::Parameter& p : parameters_.all()) {
      if (p.name != "prior") {
        p.tensor.add_(at::randn_like(p.tensor), 0.3);
      }
    }
  }

  // The gradients of x and all parameters, and the output for `x`, whose first tokens are memory; all on the CPU in
  // float64.
  std::vector<at::Tensor> results(const at::Tensor& x, const at::Tensor& gradient) const {
    const at::TensorOptions where = parameters_.all()[0].tensor.options().requires_grad(false);
    std::vector<at::Tensor> leaves = {x.to(where).requires_grad_(true)};
    for (const nn::Parameter& p : parameters_.all()) {
      leaves.push_back(p.tensor);
    }
    nn::AttentionInput input;
    input.x = leaves[0].narrow(1, memory_, x.size(1) - memory_);
    input.source = leaves[0];
    const at::Tensor out = attention_(input, nn::Context());
    std::vector<at::Tensor> all = torch::autograd::grad({out}, leaves, {gradient.to(where)}, false, false,
                                                        /*allow_unused=*/true);
    all.push_back(out.detach());
    for (at::Tensor& t : all) {
      t = t.defined() ? t.to(at::kCPU, at::kDouble) : t;
    }
    return all;
  }

 private:
  std::int64_t memory_;
  nn::Parameters parameters_;
  nn::Attention attention_;
};

double largest(const at::Tensor& t) {
  return t.defined() ? t.abs().max().item<double>() : 0.0;
}

void expect_the_cpus(const config::ModelOptions& model, const std::string& name) {
  at::manual_seed(3);
  Layer here(model, nn::ParameterSource(3, at::kDouble));
  here.perturb();
  const at::Tensor x = at::randn({2, model.memory_length + model.context_length, model.d_model}, at::kDouble),
                   gradient = at::randn({2, model.context_length, model.d_model}, at::kDouble);
  const std::vector<at::Tensor> expected = here.results(x, gradient);
  double scale = 0.0;
  for (const at::Tensor& t : expected) {
    scale = std::max(scale, largest(t));
  }
  // Roundings of 2^-53 and 2^-24, magnified by exp() of scores up to 50.
  for (const auto& [type, limit] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 5e-4}}) {
    const Layer there(model, here.moved_to(at::TensorOptions(at::kCUDA).dtype(type)));
    const std::vector<at::Tensor> got = there.results(x, gradient);
    double error = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(got[i].defined(), expected[i].defined()) << name;
      const double difference = got[i].defined() ? largest(got[i] - expected[i]) : 0.0;
      error = difference <= error ? error : difference;  // keeps NaN
    }
    EXPECT_LE(error / scale, limit) << name << " in " << at::toString(type);
  }
}

TEST(Combinations, AllAgreeWithTheCpu) {
  int legal = 0;
  for (const testing::Choice& projection : testing::projections()) {
    for (const testing::Choice& score : testing::scores()) {
      for (const testing::Choice& composition : testing::compositions()) {
        for (const testing::Choice& mask : testing::masks()) {
          for (const testing::Choice& position : testing::positions()) {
            config::ModelOptions model = testing::small_model();
            std::string name;
            for (const testing::Choice* choice : {&projection, &score, &composition, &mask, &position}) {
              choice->set(model);
              name += "/" + choice->name;
            }
            if (testing::refusal(model).empty()) {
              ++legal;
              expect_the_cpus(model, name);
            }
          }
        }
      }
    }
  }
  RecordProperty("legal", legal);
  EXPECT_GT(legal, 150);
}

}  // namespace combinations_test
}  // namespace headroom::device
