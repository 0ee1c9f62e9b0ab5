// Tests that dividing a batch does not change the result: random numbers depend only on the position.

#include "engine/ops/gradients.h"
#include "headroom/models/classifier.h"
#include "headroom/models/language_model.h"
#include "small_models.h"

namespace headroom::models::split_batch_test {

using testing::relative_error;

config::ModelOptions with_all_noise() {
  config::ModelOptions o = tiny::model();
  o.context_length = 6;
  o.dropout = 0.2;
  return o;
}

testing::Models kinds() {
  const std::string experts = "projection=experts expert_dropout=0.3", relu = "memory_length=6 mlp.activation=relu ";
  return testing::models_of(
      with_all_noise(),
      {{"dropout", ""},
       {"expert dropout", experts, relu},
       // The entropy loss is disabled because it is not a sum over the batch's parts.
       {"expert dropout in the MLP", experts,
        relu + "mlp.kind=experts mlp.d_hidden=8 mlp.expert_dropout=0.3 mlp.entropy_coefficient=0"},
       {"noisy routing",
        "projection=routed_heads noisy_routing=true expert_dropout=0.2 switch_coefficient=0 z_coefficient=0"},
       {"soft-E priors", "score=gaussian_mixture prior=head_position prior_update=soft_e"}});
}

struct Outcome {
  double loss = 0.0;
  std::vector<std::pair<std::string, at::Tensor>> after;  // gradients, followed by buffers
};

// Trains on two consecutive chunks of 8 rows, each in `parts` parts; the second chunk uses the first one's memory.
Outcome run(const config::ModelOptions& options, std::int64_t parts, std::uint64_t seed = 11) {
  LanguageModel model(options, 3, at::kDouble);
  at::manual_seed(5);
  const at::Tensor tokens = at::randint(options.vocabulary_size, {8, 13}, at::kLong);
  const std::int64_t rows = 8 / parts;
  Outcome outcome;
  std::vector<Memory> memories(static_cast<std::size_t>(parts));
  for (std::int64_t step = 0; step < 2; ++step) {
    nn::BufferUpdates updates;
    for (std::int64_t part = 0; part < parts; ++part) {
      const nn::Context context{
          .training = true,
          .random =
              nn::Randomness{.seed = seed + static_cast<std::uint64_t>(step), .first_row = part * rows, .rows = rows},
          .updates = &updates};
      const at::Tensor mine = tokens.narrow(0, part * rows, rows).narrow(1, step * 6, 7);
      const Loss loss = model.loss(mine, memories[static_cast<std::size_t>(part)], context);
      (loss.total() / static_cast<double>(parts)).backward();
      outcome.loss += loss.total().item<double>() / static_cast<double>(parts);
    }
    nn::apply(updates);
  }
  for (const nn::Parameter& p : model.parameters().stored()) {
    const bool learned = p.tensor.requires_grad();
    outcome.after.emplace_back(p.name, learned ? p.tensor.grad() : p.tensor);
  }
  return outcome;
}

TEST(SplitBatch, PartsGiveTheLossGradientsAndBuffersOfTheWhole) {
  for (const auto& [name, options] : kinds()) {
    const Outcome whole = run(options, 1), another = run(options, 1, 12);
    EXPECT_GT(std::abs(whole.loss - another.loss), 1e-3) << name << ": the random numbers make no difference";
    for (const std::int64_t parts : {2, 4, 8}) {
      const Outcome split = run(options, parts);
      EXPECT_NEAR(split.loss, whole.loss, 1e-12) << name;
      for (std::size_t i = 0; i < whole.after.size(); ++i) {
        const at::Tensor &expected = whole.after[i].second, &got = split.after[i].second;
        ASSERT_EQ(got.defined(), expected.defined()) << name << ": " << whole.after[i].first;
        if (expected.defined() && expected.abs().max().item<double>() > 1e-12) {
          EXPECT_LE(relative_error(got, expected), 1e-10) << name << ": " << whole.after[i].first;
        }
      }
    }
  }
}

TEST(SplitBatch, APairsSequencesDropDifferentPlaces) {
  config::ModelOptions o =
      tiny::changed(with_all_noise(), "", "kind=classifier n_classes=2 paired=true attention.position=learned");
  Classifier model(o, 3);
  const at::NoGradGuard no_grad;
  model.parameters().at("head.w_down").narrow(0, 0, 3 * o.d_model).zero_();  // only the rows for a - b remain
  const at::Tensor tokens = at::randint(1, o.vocabulary_size, {4, 6}, at::kLong);
  nn::Context context{.random = nn::Randomness{.seed = 1, .rows = 4}};
  const at::Tensor same = model.logits(tokens, tokens, context);
  context.training = true;
  EXPECT_GT(relative_error(model.logits(tokens, tokens, context), same), 1e-3);
}

}  // namespace headroom::models::split_batch_test
