#include "headroom/ops/linear_cross_entropy.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/kernels/cpu/softmax_rows.h"
#include "headroom/ops/choice.h"
#include "product.h"

namespace headroom::ops {
namespace {

constexpr std::int64_t kBlockNumbers = std::int64_t{1} << 23;  // logits held at once, about

std::int64_t rows_in_block(std::int64_t vocabulary) {
  return std::clamp<std::int64_t>(kBlockNumbers / std::max<std::int64_t>(vocabulary, 1), 64, 1024);
}

at::ScalarType loss_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor reference(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                     const at::Tensor& target) {
  const at::Tensor logits = (b ? at::addmm(*b, x, w) : x.mm(w)).to(loss_type(x));
  const at::Tensor counts = target.ge(0);
  const at::Tensor losses = -logits.log_softmax(1)
                                 .gather(1, target.clamp_min(0).unsqueeze(1))
                                 .squeeze(1)
                                 .masked_fill(counts.logical_not(), 0);
  return losses.sum() / counts.sum().clamp_min(1);
}

// A block's losses, and in place of its logits (without bias) the gradient for them: [rows, V] times `weight`.
at::Tensor losses_and_gradient(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& target,
                               double weight) {
  const std::int64_t rows = logits.size(0), n = logits.size(1);
  if (logits.is_cpu() && logits.scalar_type() == at::kFloat) {
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
  if (bias.defined()) {
    logits.add_(bias);
  }
  const at::Tensor ignored = target.lt(0), column = target.clamp_min(0).unsqueeze(1);
  logits.sub_(logits.amax(1, /*keepdim=*/true));
  const at::Tensor hit = logits.gather(1, column).squeeze(1);
  const at::Tensor sums = logits.exp_().sum(1);
  logits.mul_((weight / sums).masked_fill_(ignored, 0).unsqueeze(1));
  logits.scatter_add_(1, column, at::full({rows, 1}, -weight, logits.options()).masked_fill_(ignored.unsqueeze(1), 0));
  return sums.log().sub_(hit).masked_fill_(ignored, 0);
}

// The gradients of a mean are known as soon as the logits are, but for one factor: they are made in the forward
// pass, block by block, and the logits are gone before the next block.
class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, const at::Tensor& target, bool with_gradients) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor bias = b.value_or(at::Tensor());
    const at::ScalarType type = loss_type(x);
    const std::int64_t n = x.size(0), step = rows_in_block(w.size(1));
    const double count = static_cast<double>(std::max<std::int64_t>(target.ge(0).sum().item<std::int64_t>(), 1));
    at::Tensor loss = at::zeros({}, x.options().dtype(type));
    at::Tensor grad_x, grad_w, grad_b;
    if (with_gradients) {
      grad_x = at::empty_like(x);
      grad_b = bias.defined() ? at::zeros(bias.sizes(), bias.options().dtype(type)) : at::Tensor();
    }
    for (std::int64_t begin = 0; begin < n; begin += step) {
      const std::int64_t rows = std::min(step, n - begin);
      const at::Tensor block = x.narrow(0, begin, rows);
      const at::Tensor p = product(block, w).to(type);
      loss.add_(losses_and_gradient(p, bias, target.narrow(0, begin, rows), 1.0 / count).sum(), 1.0 / count);
      if (with_gradients) {
        if (grad_b.defined()) {
          grad_b.add_(p.sum(0));
        }
        const at::Tensor grad_logits = p.to(x.scalar_type());
        grad_x.narrow(0, begin, rows).copy_(product(grad_logits, w.t()));
        const at::Tensor grad_part = product_of_columns(block, grad_logits).to(type);  // many add up: in the wider type
        grad_w = grad_w.defined() ? grad_w.add_(grad_part) : grad_part;
      }
    }
    if (with_gradients) {
      grad_w = grad_w.defined() ? grad_w : at::zeros(w.sizes(), w.options().dtype(type));
      context->save_for_backward(
          {grad_x, grad_w.to(w.scalar_type()), bias.defined() ? grad_b.to(bias.scalar_type()) : at::Tensor()});
    }
    return loss;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    torch::autograd::variable_list result;
    for (const at::Tensor& gradient : saved) {
      result.push_back(gradient.defined() ? gradient * grads[0].to(gradient.scalar_type()) : at::Tensor());
    }
    result.resize(5);
    return result;
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                const at::Tensor& target, Implementation implementation) {
  const bool fits = x.dim() == 2 && w.dim() == 2 && target.dim() == 1 && x.size(1) == w.size(0) &&
                    target.size(0) == x.size(0) && (!b || (b->dim() == 1 && b->size(0) == w.size(1)));
  if (!fits) {
    fail("linear_cross_entropy: x [N, d], w [d, V], b [V] and target [N] must fit, got {}, {}, {} and {}",
         fmt::join(x.sizes(), "x"), fmt::join(w.sizes(), "x"), b ? fmt::format("{}", fmt::join(b->sizes(), "x")) : "-",
         fmt::join(target.sizes(), "x"));
  }
  if (target.numel() > 0 && target.device().is_cpu() && target.max().item<std::int64_t>() >= w.size(1)) {
    fail("linear_cross_entropy: target must be below V={}, got {}", w.size(1), target.max().item<std::int64_t>());
  }
  if (choose("linear_cross_entropy", implementation, {}) == Implementation::reference) {
    return reference(x, w, b, target);
  }
  const bool with_gradients =
      at::GradMode::is_enabled() && (x.requires_grad() || w.requires_grad() || (b && b->requires_grad()));
  return LinearCrossEntropy::apply(x, w, b, target, with_gradients);
}

}  // namespace headroom::ops
