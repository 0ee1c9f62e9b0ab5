// Composition of heads against its equation (DCMHA Eq. 3-8, App. D), pair by pair.
#include "headroom/nn/attention_parts.h"

#include <ATen/ATen.h>

#include "engine/ops/gradients.h"
#include "headroom/config/attention/composition_options.h"
#include "one_thread.h"

namespace headroom::nn {
namespace composition_test {

using config::AttentionOptions;

constexpr std::int64_t kWidth = 5, kBatch = 2, kQueries = 3, kKeys = 4;

// The factors of a token x [d] as a matrix [H, H] from head to head: in each group sum_r u_r w_r^T with
// (u, w) = act(x W_1) W_2 and u_r divided by sqrt(mean u_r^2 + 1e-6), and diag(tanh(x W_g)).
at::Tensor map_of_token(const Parameters& p, const std::string& side, const at::Tensor& x, const AttentionOptions& o,
                        bool low_rank, bool gate) {
  const auto& composed = o.of<config::CompositionOptions>();
  const std::int64_t h = o.n_heads, m = h / composed.compose_groups;
  at::Tensor map = at::zeros({h, h}, at::kDouble);
  for (std::int64_t g = 0; g < composed.compose_groups; ++g) {
    at::Tensor block = map.narrow(0, g * m, m).narrow(1, g * m, m);
    if (low_rank) {
      const at::Tensor inner = x.matmul(p.at(side + "w1")[g]);
      const at::Tensor hidden =
          composed.compose_activation == config::ComposeActivation::gelu
              ? inner * 0.5 * (1.0 + at::erf(inner / std::sqrt(2.0)))
              : inner * 0.5 * (1.0 + at::tanh(std::sqrt(2.0 / M_PI) * (inner + 0.044715 * inner.pow(3))));
      const at::Tensor f = at::tensordot(hidden, p.at(side + "w2")[g], {0}, {0});  // [2, R, m]
      for (std::int64_t r = 0; r < composed.compose_rank; ++r) {
        const at::Tensor u = f[0][r] / (f[0][r].square().mean() + 1e-6).sqrt();
        block += u.unsqueeze(1) * f[1][r].unsqueeze(0);
      }
    }
    if (gate) {
      block += at::diag(x.matmul(p.at(side + "wg")).tanh().narrow(0, g * m, m));
    }
  }
  return map;
}

struct Switches {
  bool query_rank, key_rank, query_gate, key_gate, fixed, skip;
};

AttentionOptions options_of(const Switches& s, std::int64_t groups, config::ComposeActivation activation) {
  AttentionOptions o;
  auto& composed = o.of<config::CompositionOptions>();
  o.n_heads = 4;
  o.composition = "dynamic";
  composed.compose_low_rank.clear();
  composed.compose_gates.clear();
  for (const auto& [name, rank, gate] :
       {std::tuple{"query", s.query_rank, s.query_gate}, {"key", s.key_rank, s.key_gate}}) {
    if (rank) {
      composed.compose_low_rank.emplace_back(name);
    }
    if (gate) {
      composed.compose_gates.emplace_back(name);
    }
  }
  composed.compose_static = s.fixed;
  composed.compose_skip = s.skip;
  composed.compose_groups = groups;
  composed.compose_activation = activation;
  return o;
}

at::Tensor by_hand(const Parameters& p, const std::string& stage, const Switches& s, const AttentionOptions& o,
                   const at::Tensor& x, const at::Tensor& source, const at::Tensor& a) {
  at::Tensor base = s.skip ? at::eye(o.n_heads, at::kDouble) : at::zeros({o.n_heads, o.n_heads}, at::kDouble);
  const std::int64_t m = o.n_heads / o.of<config::CompositionOptions>().compose_groups;
  for (std::int64_t g = 0; s.fixed && g < o.of<config::CompositionOptions>().compose_groups; ++g) {
    base.narrow(0, g * m, m).narrow(1, g * m, m) += p.at(stage + ".wb")[g];
  }
  at::Tensor out = at::empty_like(a);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t i = 0; i < kQueries; ++i) {
      const at::Tensor of_query = map_of_token(p, stage + ".q.", x[b][i], o, s.query_rank, s.query_gate);
      for (std::int64_t j = 0; j < kKeys; ++j) {
        const at::Tensor of_key = map_of_token(p, stage + ".k.", source[b][j], o, s.key_rank, s.key_gate);
        out.select(0, b).select(1, i).select(1, j).copy_(
            a.select(0, b).select(1, i).select(1, j).matmul(base + of_query + of_key));
      }
    }
  }
  return out;
}

TEST(Composition, MatchesItsEquation) {
  const at::NoGradGuard no_grad;
  for (const Switches& s :
       {Switches{true, true, true, true, false, true}, Switches{true, false, false, true, false, true},
        Switches{false, true, true, false, true, true}, Switches{true, true, false, false, true, false},
        Switches{false, false, true, true, false, true}}) {
    for (const std::int64_t groups : {1, 2}) {
      for (const auto activation : {config::ComposeActivation::gelu, config::ComposeActivation::gelu_tanh}) {
        at::manual_seed(groups);
        const AttentionOptions o = options_of(s, groups, activation);
        Parameters p;
        const auto composition =
            factory_of<MakeComposition>("dynamic")(o, {.d_model = kWidth}, Builder(p, ParameterSource(1, at::kDouble)));
        for (const Parameter& parameter : p.all()) {
          parameter.tensor.normal_();  // they start too small to see
        }
        const at::Tensor x = at::randn({kBatch, kQueries, kWidth}, at::kDouble),
                         source = at::randn({kBatch, kKeys, kWidth}, at::kDouble),
                         a = at::randn({kBatch, o.n_heads, kQueries, kKeys}, at::kDouble);
        const Context context;
        const Composition::Maps maps = composition->maps(x, composition->key_factors(source, context), context);
        for (const auto& [stage, map] : {std::pair("pre", &maps.pre), std::pair("post", &maps.post)}) {
          ASSERT_TRUE(map->has_value());
          EXPECT_LE(testing::relative_error(ops::apply_head_map(**map, a), by_hand(p, stage, s, o, x, source, a)),
                    1e-13)
              << stage << " groups " << groups;
        }
      }
    }
  }
}

}  // namespace composition_test
}  // namespace headroom::nn
