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

// Coefficients of the Newton-Schulz polynomial, steep at 0 so that small singular values grow quickly.
constexpr double kFirst = 3.4445, kThird = -4.7750, kFifth = 2.0315;
constexpr int kIterations = 5;
constexpr double kSmallestNorm = 1e-7;     // lower bound of the norm that a matrix is divided by
constexpr double kUsualAdamWUpdate = 0.2;  // root mean square of AdamW's updates, in units of the learning rate

// Processes one matrix at a time, in the matrices' dtype.
at::Tensor reference_orthogonal(const at::Tensor& matrices) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& matrix : matrices.unbind(0)) {
    at::Tensor x = matrix / matrix.norm().clamp_min(kSmallestNorm);
    for (int i = 0; i < kIterations; ++i) {
      const at::Tensor gram = x.matmul(x.t());
      x = kFirst * x + (kThird * gram + kFifth * gram.matmul(gram)).matmul(x);
    }
    all.push_back(x);
  }
  return at::stack(all);
}

struct Orthogonalisation {
  at::Tensor matrices;
  bool bfloat16 = false;
};

// Batched, with tall matrices transposed.
at::Tensor batched_orthogonal(const Orthogonalisation& in) {
  const bool tall = in.matrices.size(1) > in.matrices.size(2);
  const at::Tensor norm = at::linalg_vector_norm(in.matrices, 2, at::IntArrayRef{1, 2}, /*keepdim=*/true);
  at::Tensor x = in.matrices / norm.clamp_min(kSmallestNorm);
  x = tall ? x.transpose(1, 2).contiguous() : x;
  x = in.bfloat16 ? x.to(at::kBFloat16) : x;
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = x.bmm(x.transpose(1, 2));
    x = x.baddbmm(gram.baddbmm(gram, gram, kThird, kFifth), x, kFirst);
  }
  return (tall ? x.transpose(1, 2) : x).to(in.matrices.scalar_type());
}

Backends<Orthogonalisation>& muon_backends() {
  static Backends<Orthogonalisation> all("muon");
  return all;
}

const Registration kMuonOnCpu(muon_backends(), {{"batched", at::kCPU, 0, any_type}, never_refuses, batched_orthogonal});
const Registration kMuonOnCuda(muon_backends(),
                               {{"batched", at::kCUDA, 0, any_type}, never_refuses, batched_orthogonal});

struct MuonCall {
  std::vector<at::Tensor> parameters, gradients, m;
  MuonOptions options;
  std::string implementation = "automatic";
  template <class V>
  void visit(V& v) {
    v.changed("parameters", parameters);
    v.changed("gradients", gradients);
    v.changed("m", m);
    v.by_name();
    v("learning_rate", options.learning_rate, "momentum", options.momentum, "weight_decay", options.weight_decay);
    v("bfloat16", options.bfloat16, "gradient_scale", options.gradient_scale, "implementation", implementation);
  }
};

void require_matrices(const at::Tensor& matrices) {
  if (matrices.dim() != 3) {
    fail("muon: matrices must be [batch, rows, columns], got {}", c10::str(matrices.sizes()));
  }
}

void muon_call(const MuonCall& call) {
  MuonOptions options = call.options;
  options.implementation = implementation_named(call.implementation);
  muon_step(call.parameters, call.gradients, call.m, options);
}

}  // namespace

at::Tensor orthogonal(const at::Tensor& matrices, const MuonOptions& o) {
  require_matrices(matrices);
  if (matrices.numel() == 0) {
    return matrices;
  }
  const Orthogonalisation all{matrices, o.bfloat16};
  const auto* batched = muon_backends().choose(o.implementation, matrices, all);
  return batched != nullptr ? batched->run(all) : reference_orthogonal(matrices);
}

void muon_step(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
               const std::vector<at::Tensor>& m, const MuonOptions& o) {
  require_alike("muon", "gradients", gradients, parameters);
  require_alike("muon", "m", m, parameters);
  for (const at::Tensor& parameter : parameters) {
    require_matrices(parameter);
  }
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor gradient = o.gradient_scale == 1.0 ? gradients[i] : gradients[i] * o.gradient_scale;
    m[i].lerp_(gradient, 1.0 - o.momentum);
    const at::Tensor update = orthogonal(gradient.lerp(m[i], o.momentum), o);
    const auto longer = static_cast<double>(std::max(update.size(1), update.size(2)));
    parameters[i].mul_(1.0 - o.learning_rate * o.weight_decay);
    parameters[i].sub_(update, o.learning_rate * kUsualAdamWUpdate * std::sqrt(longer));
  }
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define_public<MuonCall, muon_call>(library, "muon_step");
}

}  // namespace headroom::ops
