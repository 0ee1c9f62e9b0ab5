// linear_cross_entropy: schema, reference, backends.
#include "headroom/ops/linear.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/ops/backend.h"
#include "engine/ops/linear/dense_matmul.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

// The forward pass computes the gradients for an incoming gradient of 1 together with each block of logits, which is
// discarded before the next block. The backward pass only multiplies by the incoming gradient.
struct FusedLinearCrossEntropy {
  static constexpr const char* kName = "linear_cross_entropy_fused";
  struct Arguments {
    at::Tensor x, w, target;
    OptionalTensor b;
    bool with_gradients = true;
    template <class V>
    void visit(V& v) {
      v("x", x, "w", w);
      v.constant("target", target);
      v("b", b, "with_gradients", with_gradients);
    }
  };
  struct Results {
    at::Tensor loss, d_x, d_w, d_b;  // gradients for an incoming gradient of 1; empty if not computed
    template <class V>
    void visit(V& v) {
      v("loss", loss, "d_x", d_x, "d_w", d_w, "d_b", d_b);
    }
  };
  struct Backward {
    at::Tensor grad, d_x, d_w;
    OptionalTensor d_b;
    template <class V>
    void visit(V& v) {
      v("grad", grad, "d_x", d_x, "d_w", d_w, "d_b", d_b);
    }
  };
  static Backward save(const Arguments& in, const Results& out) {
    return {{}, out.d_x, out.d_w, in.b ? OptionalTensor(out.d_b) : std::nullopt};
  }
  // The backward pass, on any device.
  static Arguments scaled(const Backward& back) {
    const auto scale = [&](const at::Tensor& d) { return d * back.grad.to(d.scalar_type()); };
    return {scale(back.d_x), scale(back.d_w), {}, back.d_b ? OptionalTensor(scale(*back.d_b)) : std::nullopt, true};
  }
};

using CrossEntropyInputs = FusedLinearCrossEntropy::Arguments;

Backends<CrossEntropyInputs>& cross_entropy_backends() {
  static Backends<CrossEntropyInputs> all("linear_cross_entropy");
  return all;
}

at::ScalarType loss_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Rows of a block of logits [rows, V]: on a CPU a block fits in the cache, on other devices it keeps all cores busy.
std::int64_t rows_in_block(std::int64_t vocabulary, bool on_cpu) {
  const std::int64_t logits = std::int64_t{1} << (on_cpu ? 24 : 27);
  return std::clamp<std::int64_t>(logits / std::max<std::int64_t>(vocabulary, 1), 64, on_cpu ? 1024 : 8192);
}

// Returns a block's losses and replaces its logits [rows, V], given without bias, by `weight` times their gradient.
at::Tensor losses_and_gradient(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& target,
                               double weight) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  const at::Tensor losses = at::empty({rows}, logits.options());
  const at::Tensor wanted = target.contiguous(),
                   wide = bias.defined() ? bias.to(at::kFloat).contiguous() : at::Tensor();
  float* row = logits.mutable_data_ptr<float>();
  float* loss = losses.mutable_data_ptr<float>();
  const float* b = wide.defined() ? wide.const_data_ptr<float>() : nullptr;
  const std::int64_t* column = wanted.const_data_ptr<std::int64_t>();
  at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      loss[i] = kernels::cross_entropy_row(row + i * n, b, n, column[i], static_cast<float>(weight));
    }
  });
  return losses;
}

struct BlockOfLogits {
  at::Tensor losses;    // [rows], 0 where the target is negative
  at::Tensor gradient;  // [rows, V]; undefined if not wanted
};

// Computes a block of rows of x with torch operators that read and write the logits as few times as possible. The
// gradient belongs to the sum of the losses and has x's dtype.
BlockOfLogits block_by_torch(const CrossEntropyInputs& in, const at::Tensor& x, const at::Tensor& target) {
  const at::Tensor ignored = target.lt(0).unsqueeze(1), column = target.clamp_min(0).unsqueeze(1);
  const OptionalTensor bias = in.b ? OptionalTensor(in.b->to(x.scalar_type())) : std::nullopt;
  const at::Tensor log_p = at::log_softmax(dense_matmul(x, in.w, bias), 1, loss_type(x));
  const at::Tensor hit = log_p.gather(1, column);
  BlockOfLogits block{.losses = hit.neg().masked_fill_(ignored, 0).squeeze(1)};
  if (in.with_gradients) {
    block.gradient = at::empty(log_p.sizes(), x.options());
    at::exp_out(block.gradient, log_p);
    block.gradient.scatter_(1, column, hit.expm1().to(x.scalar_type())).masked_fill_(ignored, 0);
  }
  return block;
}

// Whether the row kernel computes the losses on the CPU, from float32 logits.
bool by_rows_kernel(const at::Tensor& x) {
  return x.is_cpu() && loss_type(x) == at::kFloat;
}

// Whether w is the transpose of a contiguous matrix, as a tied embedding is.
bool is_transposed(const at::Tensor& w) {
  return !w.is_contiguous() && w.t().is_contiguous();
}

// Returns x^T d_logits [d, V] in the memory order of w: autograd adds the embedding's gradient to it, and adding
// tensors of different orders is slow.
at::Tensor weight_gradient(const at::Tensor& x, const at::Tensor& d_logits, const at::Tensor& w) {
  return is_transposed(w) ? dense_matmul_transposed(d_logits, x).t() : dense_matmul_transposed(x, d_logits);
}

// Calls use(first row, block of x, its logits) for blocks of rows. `weight` multiplies the kernel's gradients.
template <class Use>
void for_blocks_of_logits(const CrossEntropyInputs& in, double weight, const Use& use) {
  const std::int64_t n = in.x.size(0), step = rows_in_block(in.w.size(1), in.x.is_cpu());
  for (std::int64_t begin = 0; begin < n; begin += step) {
    const std::int64_t rows = std::min(step, n - begin);
    const at::Tensor x = in.x.narrow(0, begin, rows), target = in.target.narrow(0, begin, rows);
    BlockOfLogits logits;
    if (by_rows_kernel(x)) {
      logits.gradient = dense_matmul(x, in.w).to(loss_type(x));
      logits.losses = losses_and_gradient(logits.gradient, in.b.value_or(at::Tensor()), target, weight);
    } else {
      logits = block_by_torch(in, x, target);
    }
    use(begin, x, logits);
  }
}

// Gradients of the mean over `counted` targets. The kernel divides at once; the path without the kernel divides at the
// end, to avoid synchronising with the host.
FusedLinearCrossEntropy::Results cross_entropy_blocks(const FusedLinearCrossEntropy::Arguments& in) {
  const at::Tensor &x = in.x, bias = in.b.value_or(at::Tensor());
  const at::ScalarType type = loss_type(x);
  const at::TensorOptions wide = x.options().dtype(type);
  const bool kernel = by_rows_kernel(x);
  const at::Tensor counted = in.target.ge(0).sum().clamp_min(1);
  const double count = kernel ? static_cast<double>(counted.item<std::int64_t>()) : 1.0;
  const at::Tensor loss = at::zeros({}, wide);
  at::Tensor d_x = at::empty({0}, x.options()), d_w = at::empty({0}, x.options()), d_b = at::empty({0}, x.options());
  if (in.with_gradients) {
    d_x = at::empty(x.sizes(), x.options());
    d_w = at::Tensor();
    d_b = bias.defined() ? at::zeros(bias.sizes(), wide) : d_b;
  }
  for_blocks_of_logits(in, 1.0 / count, [&](std::int64_t begin, const at::Tensor& block, const BlockOfLogits& logits) {
    loss.add_(logits.losses.sum(), 1.0 / count);
    if (in.with_gradients) {
      if (bias.defined()) {
        d_b.add_(logits.gradient.sum(0, /*keepdim=*/false, type));
      }
      const at::Tensor d_logits = logits.gradient.to(x.scalar_type());
      d_x.narrow(0, begin, block.size(0)).copy_(dense_matmul(d_logits, in.w.t()));
      const at::Tensor part = weight_gradient(block, d_logits, in.w);
      d_w = d_w.defined() ? d_w.to(type).add_(part) : part;  // accumulated in the wider type
    }
  });
  if (!d_w.defined()) {
    d_w = at::zeros_like(in.w, wide);
  }
  if (!kernel) {
    const at::Tensor share = counted.to(type).reciprocal();
    d_w = d_w.to(type);
    for (at::Tensor sum : {loss, d_x, d_w, d_b}) {
      sum.mul_(share);
    }
  }
  return {loss, d_x, d_w.to(in.w.scalar_type()), bias.defined() ? d_b.to(bias.scalar_type()) : d_b};
}

at::Tensor cross_entropy_run(const FusedLinearCrossEntropy::Arguments& in) {
  return call<FusedLinearCrossEntropy>(in).loss;
}

const Registration kCrossEntropyOnCpu(cross_entropy_backends(),
                                      {{"blocks", at::kCPU, 0, any_type}, never_refuses, cross_entropy_run});
const Registration kCrossEntropyOnCuda(cross_entropy_backends(),
                                       {{"blocks", at::kCUDA, 0, any_type}, never_refuses, cross_entropy_run});

// The loss of each row, 0 where its target is negative, computed in blocks of rows.
at::Tensor losses_in_blocks(const CrossEntropyInputs& in) {
  const at::Tensor losses = at::empty({in.x.size(0)}, in.x.options().dtype(loss_type(in.x)));
  for_blocks_of_logits(in, 1.0, [&](std::int64_t begin, const at::Tensor& x, const BlockOfLogits& logits) {
    losses.narrow(0, begin, x.size(0)).copy_(logits.losses);
  });
  return losses;
}

void check(const CrossEntropyInputs& in) {
  const auto& [x, w, target, b, with_gradients] = in;
  const bool fits = x.dim() == 2 && w.dim() == 2 && target.dim() == 1 && x.sym_size(1) == w.sym_size(0) &&
                    target.sym_size(0) == x.sym_size(0) && (!b || (b->dim() == 1 && b->sym_size(0) == w.sym_size(1)));
  if (!fits) {
    fail("linear_cross_entropy: x [N, d], w [d, V], b [V] and target [N] must fit, got {}, {}, {} and {}", shape_of(x),
         shape_of(w), b ? shape_of(*b) : "-", shape_of(target));
  }
  if (has_values(target) && target.is_cpu() && target.numel() > 0 && target.max().item<std::int64_t>() >= w.size(1)) {
    fail("linear_cross_entropy: target must be below V={}, got {}", w.size(1), target.max().item<std::int64_t>());
  }
}

// The loss of each row, 0 where its target is negative.
at::Tensor losses_reference(const CrossEntropyInputs& in) {
  const at::Tensor logits = (in.b ? at::addmm(*in.b, in.x, in.w) : in.x.mm(in.w)).to(loss_type(in.x));
  return -logits.log_softmax(1)
              .gather(1, in.target.clamp_min(0).unsqueeze(1))
              .squeeze(1)
              .masked_fill(in.target.lt(0), 0);
}

at::Tensor cross_entropy_reference(const CrossEntropyInputs& in) {
  return losses_reference(in).sum() / in.target.ge(0).sum().clamp_min(1);
}

FusedLinearCrossEntropy::Results cross_entropy_meta(const CrossEntropyInputs& in) {
  const auto none = [&] { return at::empty({0}, in.x.options()); };
  const auto weight = [&] { return is_transposed(in.w) ? dense_like(in.w.t()).t() : dense_like(in.w); };
  return {at::empty({}, in.x.options().dtype(loss_type(in.x))), in.with_gradients ? dense_like(in.x) : none(),
          in.with_gradients ? weight() : none(), in.with_gradients && in.b ? dense_like(*in.b) : none()};
}

struct CrossEntropyCall {
  CrossEntropyInputs in;
  std::string implementation = "automatic";
  template <class V>
  void visit(V& v) {
    v("x", in.x, "w", in.w);
    v.constant("target", in.target);
    v("b", in.b);
    v.by_name();
    v("implementation", implementation);
  }
};

at::Tensor cross_entropy_call(const CrossEntropyCall& c) {
  require_type("linear_cross_entropy", "target", c.in.target, at::kLong);
  require_floating("linear_cross_entropy", "x, w and b", {c.in.x, c.in.w, c.in.b.value_or(c.in.w)});
  return linear_cross_entropy(c.in.x, c.in.w, c.in.b, c.in.target, implementation_named(c.implementation));
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                const at::Tensor& target, Implementation implementation) {
  const CrossEntropyInputs in{
      x, w, target, b,
      at::GradMode::is_enabled() && (x.requires_grad() || w.requires_grad() || (b && b->requires_grad()))};
  check(in);
  const auto* fused = cross_entropy_backends().choose(implementation, x, in);
  return fused != nullptr ? fused->run(in) : cross_entropy_reference(in);
}

at::Tensor token_cross_entropy(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                               const at::Tensor& target, Implementation implementation) {
  const at::NoGradGuard no_grad;
  const CrossEntropyInputs in{x, w, target, b, false};
  check(in);
  const bool fused = cross_entropy_backends().choose(implementation, x, in) != nullptr;
  const at::Tensor losses = fused ? losses_in_blocks(in) : losses_reference(in);
  return losses.index_select(0, target.ge(0).nonzero().squeeze(1));
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedLinearCrossEntropy>(library);
  implement<FusedLinearCrossEntropy, cross_entropy_meta, FusedLinearCrossEntropy::scaled>(library,
                                                                                          c10::DispatchKey::Meta);
  implement<FusedLinearCrossEntropy, cross_entropy_blocks, FusedLinearCrossEntropy::scaled>(library,
                                                                                            c10::DispatchKey::CPU);
  implement<FusedLinearCrossEntropy, cross_entropy_blocks, FusedLinearCrossEntropy::scaled>(library,
                                                                                            c10::DispatchKey::CUDA);
  define_public<CrossEntropyCall, cross_entropy_call>(library, "linear_cross_entropy");
}

}  // namespace headroom::ops
