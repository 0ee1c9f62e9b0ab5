#include "training/train/step/step.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "engine/nn/combinations.h"
#include "headroom/models/compute.h"
#include "headroom/ops/choice.h"
#include "headroom/ops/optimizers.h"
#include "tiny/files.h"

namespace headroom::train::step_test {

at::Tensor random_tokens(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Random random(seed);
  at::Tensor tokens = at::empty({rows, columns}, at::kLong);
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(random.below(256));
  }
  return tokens;
}

models::Batch batch_of(const at::Tensor& tokens) {
  models::Batch batch;
  batch.tensors["tokens"] = tokens;
  batch.targets.assign(static_cast<std::size_t>(tokens.size(0)), tokens.size(1) - 1);
  return batch;
}

config::Config without_dropout() {
  config::Config config = tiny::config();
  config.model.dropout = 0.0;
  config.model.attention.of<config::RoutingOptions>().expert_dropout = 0.0;
  return config;
}

// Returns a model and its state, trained for `steps` on batches that depend on the step.
struct Trained {
  Trained(const config::Config& config, std::int64_t steps, const nn::Context& context = {})
      : model(config.model, 3), state(initial_state(model.parameters(), config.train.optimizer)) {
    for (std::int64_t step = 0; step < steps; ++step) {
      last = train_step(model, batch_of(random_tokens(4, 9, static_cast<std::uint64_t>(step))), state, config.train,
                        context);
    }
  }
  models::LanguageModel model;
  TrainState state;
  StepOutcome last;
};

double largest_difference(const models::LanguageModel& a, const models::LanguageModel& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.parameters().all().size(); ++i) {
    const at::Tensor difference = a.parameters().all()[i].tensor - b.parameters().all()[i].tensor;
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  return largest;
}

// The divergence from a teacher is KL(teacher, model) at the temperature, and is smallest if the model is its own
// teacher.
TEST(Step, ATeachersDistributionIsLearnt) {
  const config::Config config = without_dropout();
  const models::LanguageModel model(config.model, 3), other(config.model, 4);
  const at::NoGradGuard guard;
  const at::Tensor tokens = random_tokens(2, 9, 1);
  const auto logits_of = [&](const models::LanguageModel& of) {
    models::Memory memory;
    return of.logits(tokens.slice(1, 0, -1), memory, {}).to(at::kFloat);
  };
  const auto loss_with = [&](const at::Tensor& teacher, models::Distillation how) {
    models::Batch batch = batch_of(tokens);
    batch.tensors["teacher"] = teacher;
    batch.distillation = how;
    models::Memory memory;
    return model.loss(batch, memory, {});
  };
  models::Memory memory;
  const double plain = model.loss(batch_of(tokens), memory, {}).cross_entropy.item<double>();
  const models::Loss own = loss_with(logits_of(model), {.weight = 0.25, .temperature = 2.0});
  EXPECT_NEAR(own.cross_entropy.item<double>(), plain, 1e-5);
  EXPECT_NEAR(own.divergence.item<double>(), 0.0, 1e-6);

  const models::Distillation how{.weight = 0.25, .temperature = 2.0};
  const models::Loss loss = loss_with(logits_of(other), how);
  const at::Tensor p = (logits_of(other) / 2.0).log_softmax(-1), q = (logits_of(model) / 2.0).log_softmax(-1);
  const double expected = 4.0 * (p.exp() * (p - q)).sum(-1).mean().item<double>();
  EXPECT_NEAR(loss.divergence.item<double>(), expected, 1e-5);
  const double regulariser = loss.regulariser.defined() ? loss.regulariser.item<double>() : 0.0;
  EXPECT_NEAR(loss.total().item<double>(), 0.75 * plain + 0.25 * expected + regulariser, 1e-5);
}

// With only the likeliest tokens, the divergence covers these tokens and one class for all others.
TEST(Step, ATeachersLikeliestTokensAreLearnt) {
  const config::Config config = without_dropout();
  const models::LanguageModel model(config.model, 3), other(config.model, 4);
  const at::Tensor tokens = random_tokens(2, 9, 1);
  const std::int64_t k = 3;
  models::Memory memory;
  const auto logits_of = [&](const models::LanguageModel& of) {
    models::Memory none;
    return of.logits(tokens.slice(1, 0, -1), none, {}).to(at::kFloat);
  };
  const TopPredictions top = top_predictions(logits_of(other).detach(), k, 2.0);
  models::Batch batch = batch_of(tokens);
  batch.tensors["teacher"] = top.log_probability;
  batch.tensors["teacher_index"] = top.index;
  batch.distillation = {.weight = 0.25, .temperature = 2.0};
  const models::Loss loss = model.loss(batch, memory, {});

  const at::Tensor p = (logits_of(other) / 2.0).softmax(-1).to(at::kDouble), q = (logits_of(model) / 2.0).softmax(-1);
  const auto [likeliest, index] = p.topk(k, -1);
  const auto classes = [&](const at::Tensor& of) {
    const at::Tensor some = of.to(at::kDouble).gather(-1, index);
    return at::cat({some, 1.0 - some.sum(-1, true)}, -1);
  };
  const at::Tensor wanted = classes(p), found = classes(q);
  const at::Tensor expected = 4.0 * (wanted * (wanted.log() - found.log())).sum(-1).mean();
  EXPECT_NEAR(loss.divergence.item<double>(), expected.item<double>(), 1e-5);
  // The gradients of the divergence must equal the formula's.
  std::vector<at::Tensor> parameters;
  for (const nn::Parameter& parameter : model.parameters().all()) {
    parameters.push_back(parameter.tensor);
  }
  const auto of_loss = torch::autograd::grad({loss.divergence}, parameters, {}, true, false, true),
             of_formula = torch::autograd::grad({expected}, parameters, {}, true, false, true);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ASSERT_EQ(of_loss[i].defined(), of_formula[i].defined());
    if (of_loss[i].defined()) {
      EXPECT_LT((of_loss[i] - of_formula[i]).abs().max().item<double>(), 1e-5);
    }
  }
}

// For every kind of layer, gradients have the memory layout of their parameters.
TEST(Step, EveryPartIsForTheFusedOptimizer) {
  for (const auto* choices :
       {&testing::projections(), &testing::scores(), &testing::compositions(), &testing::positions()}) {
    for (const testing::Choice& choice : *choices) {
      config::Config config = tiny::config();
      config.model = testing::small_model();
      config.model.vocabulary_size = 256;
      config.model.context_length = 8;
      choice.set(config.model);
      if (!testing::refusal(config.model).empty()) {
        continue;  // not for language models
      }
      for (const auto precision : {config::Precision::fp32, config::Precision::bf16}) {
        config.train.precision = precision;
        ops::reset_implementation_counts();
        EXPECT_TRUE(Trained(config, 1, models::make_context(config.train, at::kCPU)).last.finite()) << choice.name;
        const ops::ImplementationCounts made = ops::implementation_counts().at("adamw");
        EXPECT_TRUE(made.fused == 1 && made.reference == 0) << choice.name << ": " << made.refusal;
      }
    }
  }
}

TEST(Step, MicroBatchesGiveTheSameStep) {
  config::Config config = tiny::config();  // with dropout, which depends only on the row
  // Adam's first steps are +-learning_rate for any gradient; a large epsilon makes the update proportional to it.
  config.train.epsilon = 1.0;
  config.train.clip_norm = 0.0;
  const Trained whole(config, 3);
  for (const std::int64_t parts : {2, 4}) {
    config.train.accumulate = parts;
    const Trained split(config, 3);
    EXPECT_NEAR(split.last.loss, whole.last.loss, 1e-5);
    EXPECT_NEAR(split.last.gradient_norm, whole.last.gradient_norm, 1e-4 * whole.last.gradient_norm);
    EXPECT_LT(largest_difference(whole.model, split.model), 1e-6);
    ASSERT_EQ(split.state.memory.layers.size(), 2U);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(split.state.memory.layers[layer].size(0), 4);
      EXPECT_TRUE(at::allclose(split.state.memory.layers[layer], whole.state.memory.layers[layer], 1e-4, 1e-5));
    }
  }
  config.train.accumulate = 1;
  EXPECT_GT(largest_difference(whole.model, models::LanguageModel(config.model, 3)), 1e-4) << "nothing was trained";
}

TEST(Step, MemoryIsCarriedToTheNext) {
  config::Config config = without_dropout();
  config.train.learning_rate = 0.0;
  const models::LanguageModel model(config.model, 3);
  Trained trained(config, 1);
  const at::Tensor tokens = random_tokens(4, 9, 77);
  models::Memory memory = trained.state.memory, nothing;
  const double with = model.loss(tokens, memory, {}).cross_entropy.item<double>();
  const double without = model.loss(tokens, nothing, {}).cross_entropy.item<double>();
  const double step = train_step(trained.model, batch_of(tokens), trained.state, config.train, {}).loss;
  EXPECT_NEAR(step, with, 1e-5);
  EXPECT_GT(std::abs(with - without), 1e-4) << "memory makes no difference here";
}

TEST(Step, ClippingBoundsTheGradient) {
  config::Config config = without_dropout();
  config.train.epsilon = 1e6;  // the update is learning_rate * m / epsilon: proportional to the gradient
  config.train.clip_norm = 0.0;
  const Trained free(config, 1);
  config.train.clip_norm = free.last.gradient_norm / 4.0;
  const Trained clipped(config, 1);
  EXPECT_DOUBLE_EQ(clipped.last.gradient_norm, free.last.gradient_norm) << "the norm is that before clipping";
  for (std::size_t i = 0; i < free.state.moments.m.size(); ++i) {
    EXPECT_TRUE(at::allclose(clipped.state.moments.m[i] * 4.0, free.state.moments.m[i], 1e-4, 1e-9));
  }
  config.train.clip_norm = free.last.gradient_norm * 4.0;
  EXPECT_EQ(largest_difference(Trained(config, 1).model, free.model), 0.0) << "below the limit nothing changes";
}

TEST(Step, MuonMovesTheLayersMatricesAndAdamWTheRest) {
  config::Config config = without_dropout();
  config.train.clip_norm = 0.0;
  const Trained adamw(config, 1);
  config.train.optimizer = config::Optimizer::muon;
  config.train.muon_learning_rate = 2.0 * config.train.learning_rate;
  const Trained muon(config, 1);
  const models::LanguageModel before(config.model, 3);
  for (std::size_t i = 0; i < muon.state.moments.m.size(); ++i) {
    const nn::Parameter& parameter = muon.model.parameters().all()[i];
    if (!parameter.hidden) {
      EXPECT_TRUE(at::equal(parameter.tensor, adamw.model.parameters().all()[i].tensor)) << parameter.name;
      continue;
    }
    EXPECT_FALSE(muon.state.moments.v[i].defined()) << parameter.name;
    // The first step's update has the gradient's direction; m is 1/20 of the gradient.
    const auto sizes = parameter.tensor.sizes();
    const std::int64_t columns =
        c10::multiply_integers(sizes.begin() + parameter.hidden->batch + parameter.hidden->rows, sizes.end());
    const std::int64_t batch = c10::multiply_integers(sizes.begin(), sizes.begin() + parameter.hidden->batch);
    const at::Tensor update = ops::orthogonal((muon.state.moments.m[i] * 20.0).view({batch, -1, columns}));
    const double longer = static_cast<double>(std::max(update.size(1), update.size(2)));
    const at::Tensor moved = before.parameters().all()[i].tensor.detach() -
                             update.view(sizes) * (config.train.muon_learning_rate * 0.2 * std::sqrt(longer));
    EXPECT_TRUE(at::allclose(parameter.tensor, moved, 1e-4, 1e-6)) << parameter.name;
  }
}

TEST(Step, DropoutDiffersFromStepToStep) {
  config::Config config = tiny::config();
  config.train.learning_rate = 0.0;
  Trained trained(config, 0);
  const at::Tensor tokens = random_tokens(4, 9, 1);
  const double first = train_step(trained.model, batch_of(tokens), trained.state, config.train, {}).loss;
  trained.state.memory.reset();
  EXPECT_NE(train_step(trained.model, batch_of(tokens), trained.state, config.train, {}).loss, first);
}

TEST(Step, ChangesNothingIfTheLossIsNotFinite) {
  const config::Config config = without_dropout();
  Trained trained(config, 2);
  const Trained same(config, 2);
  {
    const at::NoGradGuard no_grad;
    trained.model.parameters().at("embed").fill_(NAN);
    same.model.parameters().at("embed").fill_(NAN);
  }
  const StepOutcome outcome =
      train_step(trained.model, batch_of(random_tokens(4, 9, 9)), trained.state, config.train, {});
  EXPECT_FALSE(outcome.finite());
  EXPECT_EQ(trained.state.step, 2);
  for (std::size_t i = 0; i < trained.state.moments.m.size(); ++i) {
    EXPECT_TRUE(at::equal(trained.state.moments.m[i], same.state.moments.m[i]));
    EXPECT_TRUE(at::equal(trained.state.moments.v[i], same.state.moments.v[i]));
  }
}

TEST(Step, Bf16ProductsTrainFp32Parameters) {
  const config::Config config = without_dropout();
  const auto losses = [&](config::Precision precision) {
    Trained trained(config, 0);
    config::TrainOptions how = config.train;
    how.precision = precision;
    const nn::Context context = models::make_context(how, at::kCPU);
    std::vector<double> all;
    for (int i = 0; i < 30; ++i) {
      trained.state.memory.reset();
      all.push_back(
          train_step(trained.model, batch_of(random_tokens(4, 9, 1)), trained.state, config.train, context).loss);
    }
    for (const nn::Parameter& parameter : trained.model.parameters().all()) {
      EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat) << parameter.name;
    }
    return all;
  };
  const std::vector<double> full = losses(config::Precision::fp32), half = losses(config::Precision::bf16);
  EXPECT_NE(full.front(), half.front()) << "nothing was rounded";
  EXPECT_NEAR(full.front(), half.front(), 0.02);
  EXPECT_LT(half.back(), 0.8 * half.front()) << "one batch is memorised";
}

TEST(TopPredictions, TheOthersAreOneClass) {
  const at::Tensor logits = at::tensor({0.0F, 3.0F, 1.0F, 2.0F}).view({1, 1, 4});
  const TopPredictions top = top_predictions(logits, 2, 0.5);
  const at::Tensor p = (logits / 0.5).softmax(-1).flatten();
  EXPECT_EQ(top.index.flatten()[0].item<int>(), 1);
  EXPECT_EQ(top.index.flatten()[1].item<int>(), 3);
  const at::Tensor expected = at::stack({p[1], p[3], p[0] + p[2]}).log();
  EXPECT_LT((top.log_probability.flatten() - expected).abs().max().item<double>(), 1e-6);
}

}  // namespace headroom::train::step_test
