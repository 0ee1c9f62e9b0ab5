#include "foundation/core/transformed.h"
#include "headroom/ops/optimizers.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/backend.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

double sum_of(const std::vector<double>& squares) {
  double sum = 0.0;
  for (const double square : squares) {
    sum += square;
  }
  return sum;
}

// For devices other than the CPU: one operator call for all norms, and one synchronisation.
double norm_of_norms(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> given;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      given.push_back(gradient);
    }
  }
  return given.empty() ? 0.0 : at::stack(at::_foreach_norm(given, 2)).to(at::kDouble).norm().item<double>();
}

void reference_step(const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
                    std::int64_t step, const AdamWOptions& o) {
  parameter.mul_(1.0 - o.learning_rate * o.weight_decay);
  m.lerp_(gradient, 1.0 - o.beta1);
  v.mul_(o.beta2).addcmul_(gradient, gradient, 1.0 - o.beta2);
  const double correction1 = 1.0 - std::pow(o.beta1, static_cast<double>(step));
  const double correction2 = 1.0 - std::pow(o.beta2, static_cast<double>(step));
  const at::Tensor denominator = v.sqrt().div_(std::sqrt(correction2)).add_(o.epsilon);
  parameter.addcdiv_(m, denominator, -o.learning_rate / correction1);
}

struct AdamWStep {
  std::vector<at::Tensor> parameters, gradients, m, v;
  std::int64_t step = 1;
  AdamWOptions options;
};

void fused_step(const AdamWStep& s) {
  const AdamWOptions& o = s.options;
  const at::TensorOptions scalar = at::TensorOptions(at::kFloat).device(s.parameters[0].device());
  const std::vector<at::Tensor> steps(s.parameters.size(), at::full({}, static_cast<double>(s.step), scalar));
  std::optional<at::Tensor> inverse_scale;  // ATen divides the gradients by it
  if (o.gradient_scale != 1.0) {
    inverse_scale = at::full({}, 1.0 / o.gradient_scale, scalar);
  }
  at::_fused_adamw_(s.parameters, s.gradients, s.m, s.v, {}, steps, o.learning_rate, o.beta1, o.beta2, o.weight_decay,
                    o.epsilon, /*amsgrad=*/false, /*maximize=*/false, inverse_scale);
}

// a and b must have the same shape. The stride of an axis of size 1 does not matter.
bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  for (std::int64_t axis = 0; axis < a.dim(); ++axis) {
    if (a.size(axis) > 1 && a.stride(axis) != b.stride(axis)) {
      return false;
    }
  }
  return true;
}

// torch's fused step ignores strides: it processes each tensor's memory linearly.
bool same_layout(const AdamWStep& s, std::size_t i) {
  const at::Tensor& p = s.parameters[i];
  return p.is_non_overlapping_and_dense() && same_strides(p, s.gradients[i]) && same_strides(p, s.m[i]) &&
         same_strides(p, s.v[i]);
}

std::string fused_step_refusal(const AdamWStep& s) {
  for (std::size_t i = 0; i < s.parameters.size(); ++i) {
    if (!same_layout(s, i)) {
      return "a parameter, its gradient and its moments must have the same strides, without gaps";
    }
  }
  return "";
}

Backends<AdamWStep, void>& adamw_backends() {
  static Backends<AdamWStep, void> all("adamw");
  return all;
}

// Excludes float64: torch computes the factors in float32.
const Registration kAdamWOnCpu(adamw_backends(),
                               {{"torch", at::kCPU, 0, all_but_float64}, fused_step_refusal, fused_step});
const Registration kAdamWOnCuda(adamw_backends(),
                                {{"torch", at::kCUDA, 0, all_but_float64}, fused_step_refusal, fused_step});

struct AdamWCall {
  AdamWStep s;
  std::string implementation = "automatic";
  template <class V>
  void visit(V& v) {
    v.changed("parameters", s.parameters);
    v.changed("gradients", s.gradients);
    v.changed("m", s.m);
    v.changed("v", s.v);
    v.needed("step", s.step);
    v.by_name();
    v("learning_rate", s.options.learning_rate, "beta1", s.options.beta1, "beta2", s.options.beta2);
    v("epsilon", s.options.epsilon, "weight_decay", s.options.weight_decay);
    v("gradient_scale", s.options.gradient_scale, "implementation", implementation);
  }
};

void adamw_call(const AdamWCall& call) {
  const AdamWStep& s = call.s;
  AdamWOptions options = s.options;
  options.implementation = implementation_named(call.implementation);
  adamw_step(s.parameters, s.gradients, s.m, s.v, s.step, options);
}

}  // namespace

void adamw_step(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                const std::vector<at::Tensor>& m, const std::vector<at::Tensor>& v, std::int64_t step,
                const AdamWOptions& o) {
  require_alike("adamw", "gradients", gradients, parameters);
  require_alike("adamw", "m", m, parameters);
  require_alike("adamw", "v", v, parameters);
  if (step < 1) {
    fail("adamw: step must be at least 1, got {}", step);
  }
  if (parameters.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  const AdamWStep all{parameters, gradients, m, v, step, o};
  if (const auto* fused = adamw_backends().choose(o.implementation, parameters[0], all)) {
    return fused->run(all);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    reference_step(parameters[i], gradients[i] * o.gradient_scale, m[i], v[i], step, o);
  }
}

double global_norm(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  const auto elsewhere = [](const at::Tensor& gradient) { return gradient.defined() && !gradient.is_cpu(); };
  if (std::ranges::any_of(gradients, elsewhere)) {
    return norm_of_norms(gradients);
  }
  return std::sqrt(sum_of(square_sums(gradients)));
}

// Each block is summed by one thread, so that the order of summation does not depend on the number of threads.
std::vector<double> square_blocks(const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = gradient.reshape({-1});
  const std::int64_t blocks = flat.numel() / kSquareBlock, whole = blocks * kSquareBlock;
  const at::Tensor head = flat.narrow(0, 0, whole).view({-1, kSquareBlock}),
                   tail = flat.narrow(0, whole, flat.numel() - whole);
  std::vector<double> squares;
  if (blocks > 0) {
    const at::Tensor norms = at::linalg_vector_norm(head, 2, at::IntArrayRef{1}).to(at::kDouble);
    squares.assign(norms.const_data_ptr<double>(), norms.const_data_ptr<double>() + blocks);
  }
  squares.push_back(tail.numel() > 0 ? at::linalg_vector_norm(tail, 2).item<double>() : 0.0);
  for (double& square : squares) {
    square *= square;
  }
  return squares;
}

std::vector<double> square_sums(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  return transformed(gradients, [&](const at::Tensor& gradient) {
    return gradient.defined() ? sum_of(square_blocks(gradient)) : 0.0;
  });
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define_public<AdamWCall, adamw_call>(library, "adamw_step");
}

}  // namespace headroom::ops
