// Compares soft-E priors (Transformer-MGK, section 2) with their definition.
#include "engine/nn/attention/gaussian_mixture.h"

#include <cmath>

#include "engine/ops/gradients.h"
#include "one_thread.h"

namespace headroom::nn::prior_test {

constexpr std::int64_t kBatch = 2, kHeads = 4, kGroups = 2, kQueries = 3, kKeys = 5, kPositions = 6, kMixtures = 3;
constexpr double kEpsilon = 1e-6;

struct Sum {
  double responsibility = 0.0, pairs = 0.0;
};

// Sums resp_r = pi_r exp(s_r) / (sum_r pi_r exp(s_r) + epsilon) and counts pairs, [R - 1, G, S]. The sums are over
// pairs of valid tokens (or over all pairs), all heads of a group, and the axes that the table of priors does not have.
std::vector<std::vector<std::vector<Sum>>> sums(const std::vector<at::Tensor>& components, const at::Tensor& prior,
                                                const at::Tensor& valid_keys, const at::Tensor& valid_queries) {
  std::vector all(kMixtures - 1, std::vector(kGroups, std::vector<Sum>(kKeys)));
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kQueries; ++i) {
        for (std::int64_t j = 0; j < kKeys; ++j) {
          if (!valid_keys[b][j].item<bool>() || !valid_queries[b][i].item<bool>()) {
            continue;
          }
          const std::int64_t g = h / (kHeads / kGroups);
          std::vector<double> mass;
          double total = kEpsilon;
          for (std::int64_t r = 0; r < kMixtures; ++r) {
            mass.push_back(prior[r][g][j].item<double>() *
                           std::exp(components[static_cast<std::size_t>(r)][b][h][i][j].item<double>()));
            total += mass.back();
          }
          for (std::int64_t r = 0; r + 1 < kMixtures; ++r) {
            Sum& sum = all[static_cast<std::size_t>(r)][static_cast<std::size_t>(g)][static_cast<std::size_t>(j)];
            sum.responsibility += mass[static_cast<std::size_t>(r)] / total / (kHeads / kGroups);
            sum.pairs += 1.0 / (kHeads / kGroups);
          }
        }
      }
    }
  }
  return all;
}

// Returns the updated table of R - 1 components.
at::Tensor expected(config::Prior kind, double epsilon, const at::Tensor& table,
                    const std::vector<std::vector<std::vector<Sum>>>& all) {
  at::Tensor after = table.clone();
  for (std::int64_t r = 0; r + 1 < kMixtures; ++r) {
    Sum layer;
    for (std::int64_t g = 0; g < kGroups; ++g) {
      Sum head;
      for (std::int64_t j = 0; j < kKeys; ++j) {
        const Sum& one = all[static_cast<std::size_t>(r)][static_cast<std::size_t>(g)][static_cast<std::size_t>(j)];
        if (kind == config::Prior::head_position && one.pairs > 0.0) {
          after[r][g][j] = one.responsibility / (one.pairs + epsilon);
        }
        for (Sum* sum : {&head, &layer}) {
          sum->responsibility += one.responsibility;
          sum->pairs += one.pairs;
        }
      }
      if (kind == config::Prior::head) {
        after[r][g] = head.responsibility / (head.pairs + epsilon);
      }
    }
    if (kind == config::Prior::layer) {
      after[r] = layer.responsibility / (layer.pairs + epsilon);
    }
  }
  return after;
}

TEST(SoftE, MatchesItsDefinition) {
  const at::NoGradGuard no_grad;
  for (const auto kind : {config::Prior::layer, config::Prior::head, config::Prior::head_position}) {
    for (const auto pairs : {config::SoftEPairs::valid, config::SoftEPairs::all}) {
      at::manual_seed(1);
      config::AttentionOptions o;
      o.score = "gaussian_mixture";
      o.n_heads = kHeads;
      o.n_kv_heads = kGroups;
      o.of<config::MixtureOptions>() = {
          .n_mixtures = kMixtures, .prior = kind, .prior_update = config::PriorUpdate::soft_e, .soft_e_pairs = pairs};
      Parameters parameters;
      const MixturePrior prior(o, kPositions, Builder(parameters, ParameterSource(1, at::kDouble)));
      const at::Tensor table = parameters.stored().back().tensor;
      table.uniform_(0.1, 0.4);
      const at::Tensor before = table.clone();
      const at::Tensor last = 1.0 - before.sum(0, true);
      const at::Tensor pi = at::cat({before, last})
                                .view({kMixtures, kind == config::Prior::layer ? 1 : kGroups, -1})
                                .expand({-1, kGroups, kind == config::Prior::head_position ? kPositions : kKeys});
      std::vector<at::Tensor> components;
      for (std::int64_t r = 0; r < kMixtures; ++r) {
        components.push_back(at::randn({kBatch, kHeads, kQueries, kKeys}, at::kDouble));
      }
      // Key 1 is invalid in every row.
      const at::Tensor valid = at::tensor({1, 0, 1, 1, 0, 1, 0, 0, 1, 1}).view({kBatch, kKeys}).to(at::kBool);
      const bool all = pairs == config::SoftEPairs::all;
      const at::Tensor counted = all ? at::ones_like(valid) : valid;
      BufferUpdates updates;
      const Context context{.updates = &updates};
      prior.measure(components, valid, {}, context);
      EXPECT_TRUE(table.equal(before)) << "the step writes it";
      apply(updates);
      const at::Tensor after = expected(kind, all ? 0.0 : kEpsilon, before,
                                        sums(components, pi, counted, counted.narrow(1, kKeys - kQueries, kQueries)));
      EXPECT_LE(testing::relative_error(table, after), 1e-14) << config::name_of(kind) << " " << config::name_of(pairs);
      EXPECT_GT(testing::relative_error(table, before), 0.01);
    }
  }
}

// A vanishing component becomes subnormal, and the inverse of a subnormal number is infinite.
TEST(SoftE, AVanishingComponentLeavesGradientsFinite) {
  config::AttentionOptions o;
  o.score = "gaussian_mixture";
  o.n_heads = 1;
  o.of<config::MixtureOptions>().prior_update = config::PriorUpdate::soft_e;
  Parameters parameters;
  const MixturePrior prior(o, kPositions, Builder(parameters, ParameterSource(1, at::kFloat)));
  for (const double left : {1e-20, 1e-37, 1e-39, 1e-44, 0.0}) {
    parameters.stored().back().tensor.fill_(left);
    ops::AttentionInputs in;
    in.q = at::ones({1, 1, 1, 1}).requires_grad_();
    in.k = at::tensor({0.0F, 1.0F}).view({1, 1, 2, 1});  // far nearer than the other component's keys
    in.v = at::tensor({1.0F, 2.0F}).view({1, 1, 2, 1});
    in.mixture = ops::Mixture{.more_keys = {at::tensor({-200.0F, -201.0F}).view({1, 1, 2, 1})}};
    in.mixture->prior = prior.weights(0, 2);
    ops::attention_reference(in).sum().backward();
    EXPECT_TRUE(in.q.grad().isfinite().all().item<bool>()) << left;
  }
}

}  // namespace headroom::nn::prior_test
