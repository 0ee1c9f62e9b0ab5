#include "headroom/ops/linear_cross_entropy.h"

#include <ATen/core/grad_mode.h>

#include "engine/ops/shapes.h"
#include "headroom/core/error.h"
#include "operator.h"

namespace headroom::ops {
namespace {

using CrossEntropyInputs = FusedLinearCrossEntropy::Arguments;

void check(const CrossEntropyInputs& in) {
  const auto& [x, w, target, b, with_gradients] = in;
  const bool fits = x.dim() == 2 && w.dim() == 2 && target.dim() == 1 && x.sym_size(1) == w.sym_size(0) &&
                    target.sym_size(0) == x.sym_size(0) && (!b || (b->dim() == 1 && b->sym_size(0) == w.sym_size(1)));
  if (!fits) {
    fail("linear_cross_entropy: x [N, d], w [d, V], b [V] and target [N] must fit, got {}, {}, {} and {}", shape_of(x),
         shape_of(w), b ? shape_of(*b) : "-", shape_of(target));
  }
  if (has_numbers(target) && target.is_cpu() && target.numel() > 0 && target.max().item<std::int64_t>() >= w.size(1)) {
    fail("linear_cross_entropy: target must be below V={}, got {}", w.size(1), target.max().item<std::int64_t>());
  }
}

// Of each row, 0 where its target does not count.
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
  return {at::empty({}, in.x.options().dtype(loss_type(in.x))), in.with_gradients ? dense_like(in.x) : none(),
          in.with_gradients ? dense_like(in.w) : none(), in.with_gradients && in.b ? dense_like(*in.b) : none()};
}

struct CrossEntropyCall {
  CrossEntropyInputs in;
  std::string implementation = "automatic";
  template <class V>
  void visit(V& v) {
    v("x", in.x);
    v("w", in.w);
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

Backends<CrossEntropyInputs>& cross_entropy_backends() {
  static Backends<CrossEntropyInputs> all("linear_cross_entropy");
  return all;
}

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
  const at::Tensor losses = fused ? losses_in_blocks(x, w, b.value_or(at::Tensor()), target) : losses_reference(in);
  return losses.index_select(0, target.ge(0).nonzero().squeeze(1));
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedLinearCrossEntropy>(library);
  offer<CrossEntropyCall, cross_entropy_call>(library, "linear_cross_entropy");
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  implement<FusedLinearCrossEntropy, cross_entropy_meta, FusedLinearCrossEntropy::scaled>(library);
}

}  // namespace headroom::ops
