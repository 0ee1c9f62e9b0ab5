// Tests that padding does not change losses, usage counts or priors, for every attention part and for expert MLPs.
#include <ATen/core/grad_mode.h>

#include "engine/models/model_base.h"
#include "engine/nn/combinations.h"
#include "engine/ops/gradients.h"
#include "headroom/config/part_options.h"
#include "headroom/models/model.h"
#include "small_models.h"

namespace headroom::models::padding_test {

constexpr std::int64_t kVocabulary = 11;
const std::vector<std::int64_t> kLengths = {3, 8, 1, 6};

config::ModelOptions options_of(config::ModelKind kind) {
  config::ModelOptions m = testing::small_model();
  m.kind = kind;
  m.context_length = 13;
  m.n_classes = kind == config::ModelKind::classifier ? 3 : 0;
  m.mlp.kind = config::MlpKind::experts;
  m.mlp.n_experts = 3;
  m.mlp.top_k = 2;
  m.mlp.entropy_coefficient = 0.3;
  return m;
}

// Sets all balance losses of the projection, and lets batches update the priors of mixtures.
void set_sums(config::AttentionOptions& a) {
  auto& routed = a.of<config::RoutedHeadOptions>();
  if (a.projection == "routed_heads" || a.projection == "routed_queries") {
    routed.switch_slots_coefficient = routed.cv_coefficient = routed.entropy_coefficient = 0.2;
    routed.switch_coefficient = routed.z_coefficient = 0.1;
  } else if (a.projection == "experts") {
    a.of<config::ExpertOptions>().expert_entropy_coefficient = 0.2;
  }
  if (auto& mixture = a.of<config::MixtureOptions>(); a.score == "gaussian_mixture" && mixture.has_prior()) {
    mixture.prior_update = config::PriorUpdate::soft_e;
  }
}

testing::Models models_of_kind(config::ModelKind kind) {
  testing::Models all;
  for (const auto& axis : {testing::projections(), testing::scores(), testing::compositions(), testing::positions(),
                           testing::output_gates()}) {
    for (const testing::Choice& choice : axis) {
      config::ModelOptions m = options_of(kind);
      choice.set(m);
      set_sums(m.attention);
      if (testing::refusal(m).empty()) {
        all.emplace_back(std::string(config::name_of(kind)) + ", " + choice.name, m);
      }
    }
  }
  return all;
}

// Returns tokens [N, width] with ids from 1, and `fill` after each row's length.
at::Tensor rows(std::int64_t width, std::uint64_t seed, std::int64_t fill) {
  const at::Tensor ids = random_ids(kVocabulary - 1, {std::ssize(kLengths), 13}, seed).narrow(1, 0, width) + 1;
  return ids.masked_fill(at::arange(width).ge(at::tensor(kLengths).unsqueeze(1)), fill);
}

Batch padded_to(std::int64_t width) {
  Batch batch;
  const at::Tensor tokens = rows(width, 1, 0), valid = tokens.ne(0);
  batch.tensors = {{"tokens", tokens}, {"valid", valid},        {"hidden", rows(width, 2, -1)},
                   {"source", tokens}, {"valid_source", valid}, {"label", at::tensor({0, 2, 1, 1}, at::kLong)},
                   {"target", tokens}, {"valid_target", valid}, {"next", rows(width, 3, -1)}};
  return batch;
}

struct Outcome {
  at::Tensor loss;
  nn::ExpertUsage usage;
  nn::BufferUpdates updates;
};

Outcome outcome(const Model& model, std::int64_t width) {
  Outcome result;
  Memory memory;
  nn::Context context{.training = true, .random = nn::Randomness{.rows = std::ssize(kLengths)}};
  context.usage = &result.usage;
  context.updates = &result.updates;
  result.loss = model.loss(padded_to(width), memory, context).total();
  return result;
}

TEST(Padding, ChangesNoLoss) {
  const at::NoGradGuard no_grad;
  std::size_t counted = 0, updated = 0;
  for (const config::ModelKind kind :
       {config::ModelKind::masked_language_model, config::ModelKind::classifier, config::ModelKind::encoder_decoder}) {
    const testing::Models all = models_of_kind(kind);
    EXPECT_GT(all.size(), 20U);
    for (const auto& [name, options] : all) {
      const auto model = make_model(options, 3, at::kDouble);
      const Outcome narrow = outcome(*model, 8), wide = outcome(*model, 13);
      EXPECT_LE(testing::relative_error(wide.loss, narrow.loss), 1e-12) << name;
      for (const auto& [router, counts] : narrow.usage) {
        EXPECT_TRUE(counts.equal(wide.usage.at(router))) << name << ": " << router;
        ++counted;
      }
      for (const auto& [buffer, update] : narrow.updates) {
        const nn::BufferUpdate& same = wide.updates.at(buffer);
        EXPECT_LE(testing::relative_error(same.sum / (same.count + 1e-9), update.sum / (update.count + 1e-9)), 1e-6)
            << name << ": " << buffer;
        ++updated;
      }
    }
  }
  EXPECT_GT(counted, 100U);
  EXPECT_GT(updated, 0U);
}

}  // namespace headroom::models::padding_test
