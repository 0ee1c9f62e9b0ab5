#include <gtest/gtest.h>

#include <cmath>

#include "data/synthetic/composition_task.h"
#include "tiny/files.h"
#include "tools/zero_shot/zero_shot.h"
#include "training/tasks/language/language_modelling.h"

namespace headroom::tasks::composition_modelling_test {

Figures figures_of(const Evaluation& evaluation) {
  return composition().figures_of(evaluation.sums);
}

class CompositionModellingTask : public ::testing::Test {
 protected:
  CompositionModellingTask() {
    config_ = tiny::config();
    tiny::set(config_, "model.memory_length=0 model.context_length=256 model.n_layers=1");
    config_.tokenizer = {.kind = config::TokenizerKind::words, .vocabulary_size = 0};
    config_.vocabulary_follows_tokenizer = true;
    tiny::set(config_, "data.generator=composition data.generated_train=200 data.generated_validation=12");
  }

  TaskData open() const { return task_for(config_, "test").open(config_, folder_.path()); }
  // Returns a model that always predicts "Ada".
  std::unique_ptr<models::Model> ada(const tokenizers::Tokenizer& tokenizer) const {
    config::ModelOptions options = config_.model;
    options.vocabulary_size = tokenizer.vocabulary_size();
    options.head_bias = true;
    auto model = models::make_model(options, 5);
    const at::NoGradGuard no_grad;
    model->parameters().at("head.b")[tokenizer.encode("Ada").at(0)].fill_(100.0);
    return model;
  }
  zero_shot::Tally answers(const models::Model& model, const tokenizers::Tokenizer& tokenizer) const {
    const zero_shot::ZeroShotResult result = zero_shot::evaluate_zero_shot(
        models::as_language_model(model, "test"), tokenizer, {.task = "composition", .run = config_.data});
    zero_shot::Tally all;
    for (const auto& [name, tally] : result.subsets) {
      all.questions += tally.questions;
      all.right += tally.right;
      all.log_probability += tally.log_probability;
    }
    return all;
  }

  tiny::Folder folder_;
  config::Config config_;
};

TEST_F(CompositionModellingTask, ValidatesWithItsAnswers) {
  config_.data.generated_validation = 60;
  const TaskData data = open();
  const auto model = ada(*data.tokenizer);
  const Evaluation evaluation = data.validation->evaluate(*model, {});
  const zero_shot::Tally expected = answers(*model, *data.tokenizer);
  EXPECT_EQ(expected.questions, 360);
  std::int64_t named_ada = 0;
  for (std::int64_t i = 0; i < 60; ++i) {
    const data::GeneratedRow row =
        data::generated_row(data::composition_rows(config_.data, data::Split::validation), i);
    const data::CompositionRow parsed = data::parse_composition_row(row.text, "test");
    for (const auto& answer : parsed.answers) {
      named_ada += parsed.text.substr(answer.begin, answer.end - answer.begin) == "Ada" ? 1 : 0;
    }
  }
  EXPECT_GT(named_ada, 0);
  EXPECT_EQ(expected.right, named_ada);
  EXPECT_EQ(figure(figures_of(evaluation), "accuracy"), static_cast<double>(named_ada) / 360.0);
  EXPECT_NEAR(std::log(figure(figures_of(evaluation), "answer_perplexity")), -expected.log_probability / 360.0, 1e-3);
  EXPECT_FALSE(std::isnan(figure(figures_of(evaluation), "bits_per_byte")));
  EXPECT_EQ(figures_of(data.validation->evaluate(*model, {.batch_size = 3})).at("accuracy"),
            figures_of(evaluation).at("accuracy"));
  const EvaluationRequest request{.config = config_, .tokenizer = data.tokenizer, .files = {}, .cache = folder_.path()};
  EXPECT_EQ(figures_of(composition().open_evaluation(request)->evaluate(*model, {})), figures_of(evaluation));
}

TEST_F(CompositionModellingTask, ReadsABoundedNumberOfRows) {
  const auto perplexity = [&](std::int64_t rows, std::int64_t most_tokens) {
    config_.data.generated_validation = rows;
    const TaskData data = open();
    const auto model = ada(*data.tokenizer);
    return figure(figures_of(data.validation->evaluate(*model, {.batch_size = 64, .most_tokens = most_tokens})),
                  "answer_perplexity");
  };
  // The part is the middle row of three. Its loss follows from the means over the first row and the first two.
  const double second = 2.0 * std::log(perplexity(2, 0)) - std::log(perplexity(1, 0));
  EXPECT_NEAR(std::log(perplexity(3, 1)), second, 1e-6) << "one row at least";
  EXPECT_NE(perplexity(3, 1), perplexity(3, 0));
  EXPECT_EQ(perplexity(300, 0), perplexity(256, 0));
}

TEST_F(CompositionModellingTask, ComparesModelsByAccuracy) {
  const std::vector<FigureKind>& kinds = composition().figures();
  EXPECT_EQ(headline(kinds).name, "accuracy");
  EXPECT_EQ(headline(kinds).better, Better::higher);
  EXPECT_EQ(kinds.front().name, "loss") << "what training makes smaller";
  EXPECT_EQ(shown_in_tables(kinds).size(), 3U);
  config_.data.validation = {"held_out.txt"};
  EXPECT_EQ(&task_for(config_, "test"), &language_modelling()) << "text of files has no rows";
}

TEST_F(CompositionModellingTask, OtherTextHasNoAnswers) {
  const TaskData data = open();
  const auto model = ada(*data.tokenizer);
  write_text_file(folder_ / "other.txt", tiny::text(500));
  const auto other = composition().open_evaluation({.config = config_,
                                                    .tokenizer = data.tokenizer,
                                                    .files = {(folder_ / "other.txt").string()},
                                                    .cache = folder_.path()});
  const Figures figures = figures_of(other->evaluate(*model, {}));
  EXPECT_TRUE(figures.contains("perplexity"));
  EXPECT_FALSE(figures.contains("accuracy"));
}

}  // namespace headroom::tasks::composition_modelling_test
