// Where a tensor lies does not change a result: rows at odd offsets and strides give the same bits as tight ones.
#include "engine/ops/attention/cases.h"
#include "gradients.h"

namespace headroom::ops {
namespace attention_views_test {

// Result and gradients, where everything lies in that layout.
std::vector<at::Tensor> evaluate(const AttentionInputs& in, Layout layout) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& leaf : leaves_of(in)) {
    leaves.push_back(lay(leaf, layout).requires_grad_());
  }
  const at::Tensor o = attention(with_leaves(in, leaves), Implementation::fused);
  at::manual_seed(12);
  const at::Tensor grad = lay(at::randn(o.sizes()).to(o.scalar_type()), layout);
  std::vector<at::Tensor> all = torch::autograd::grad({o}, leaves, {grad});
  all.push_back(o);
  return all;
}

TEST(AttentionViews, EqualCopiesBitForBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const AttentionCase& c : attention_cases(Role::sequence)) {
      if (c.padding != AttentionCase::none || c.window > 0) {
        continue;
      }
      at::manual_seed(11);
      const AttentionInputs in = c.inputs({type});
      const std::vector<at::Tensor> tight = evaluate(in, Layout::dense), views = evaluate(in, Layout::gaps);
      for (std::size_t i = 0; i < tight.size(); ++i) {
        EXPECT_TRUE(views[i].equal(tight[i])) << c.name() << " tensor " << i << " of " << type;
        EXPECT_TRUE(tight[i].isfinite().all().item<bool>()) << c.name();
      }
    }
  }
}

}  // namespace attention_views_test
}  // namespace headroom::ops
