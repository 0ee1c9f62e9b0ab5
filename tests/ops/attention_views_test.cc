// Where a tensor lies does not change a result: rows at odd offsets and strides give the same bits as tight ones.
#include "sequences.h"

namespace headroom::ops {
namespace attention_views_test {

using testing::bfloat16::Sizes;
using testing::sequences::all_kinds;
using testing::sequences::Kind;

// Rows that begin at an odd number and lie an odd number apart.
at::Tensor odd_rows(const at::Tensor& t) {
  std::vector<std::int64_t> shape = t.sizes().vec();
  shape.back() += 3 - t.size(-1) % 2;
  return at::zeros(shape, t.options()).narrow(-1, 1, t.size(-1)).copy_(t);
}

// The result, and the gradients of queries, keys, values and offsets.
std::vector<at::Tensor> evaluate(AttentionInputs in, const std::function<at::Tensor(const at::Tensor&)>& lay) {
  std::vector<at::Tensor*> leaves = {&in.q, &in.k, &in.v};
  if (in.r) {
    leaves.insert(leaves.end(), {&*in.q_position, &*in.r});
  }
  if (in.mixture) {
    for (at::Tensor& key : in.mixture->more_keys) {
      leaves.push_back(&key);
    }
  }
  std::vector<at::Tensor> of;
  for (at::Tensor* leaf : leaves) {
    of.push_back(lay(leaf->detach()).requires_grad_());
    *leaf = of.back();
  }
  const at::Tensor o = attention(in, Implementation::fused);
  at::manual_seed(12);
  const at::Tensor grad = lay(at::randn(o.sizes()).to(o.scalar_type()));
  std::vector<at::Tensor> all = torch::autograd::grad({o}, of, {grad});
  all.push_back(o);
  return all;
}

TEST(AttentionViews, EqualCopiesBitForBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Sizes& z : std::vector<Sizes>{{2, 4, 2, 70, 70, 13}, {1, 4, 4, 5, 5, 32}, {1, 2, 1, 66, 66, 64}}) {
      for (const Kind& kind : all_kinds()) {
        at::manual_seed(11);
        const AttentionInputs in = testing::sequences::sequence(z, kind, type);
        const std::vector<at::Tensor> tight = evaluate(in, [](const at::Tensor&t) { return t.contiguous(); }),
                                      views = evaluate(in, odd_rows);
        for (std::size_t i = 0; i < tight.size(); ++i) {
          EXPECT_TRUE(views[i].equal(tight[i])) << z.name() << kind.name() << " tensor " << i << " of " << type;
          EXPECT_TRUE(tight[i].isfinite().all().item<bool>()) << z.name() << kind.name();
        }
      }
    }
  }
}

}  // namespace attention_views_test
}  // namespace headroom::ops
