// Tests classification of ListOps expressions and texts.

#include <cmath>

#include "headroom/models/classifier.h"
#include "small_classes.h"
#include "training/tasks/classes/classification.h"

namespace headroom::tasks::classification_test {

using namespace small_classes;

TEST(Classification, EvaluationIsTheMeanOverExamplesInAnyBatches) {
  const tiny::Folder folder;
  const config::Config config = listops_config();
  const auto model = models::make_model(config.model, 5);
  const TaskData data = sequence_classification().open(config, folder.path());
  const Evaluation alone = data.validation->evaluate(*model, {.batch_size = 1});
  EXPECT_EQ(alone.predictions(), 70);
  // The figures must equal their definitions.
  const at::NoGradGuard no_grad;
  const data::listops::Generated made = data::listops::generate(config.data);
  double loss = 0.0, right = 0.0;
  for (std::int64_t i = 0; i < 70; ++i) {
    const auto symbols = made.validation.first.at(i);
    const std::vector<std::int64_t> ids(symbols.begin(), symbols.end());
    models::Batch one;
    one.tensors["tokens"] = at::tensor(at::ArrayRef<std::int64_t>(ids), at::kLong).unsqueeze(0);
    const at::Tensor logp =
        dynamic_cast<const models::ClassModel&>(*model).class_logits(one, {})[0].to(at::kDouble).log_softmax(0);
    const std::int32_t label = made.validation.labels[static_cast<std::size_t>(i)];
    loss -= logp[label].item<double>() / 70.0;
    right += logp.argmax().item<std::int64_t>() == label ? 1.0 / 70.0 : 0.0;
  }
  EXPECT_NEAR(figures_of(alone).at("loss"), loss, 1e-5);
  EXPECT_NEAR(figures_of(alone).at("accuracy"), right, 1e-12);
  for (const std::int64_t batch : {7, 64, 1000}) {
    const Evaluation result = data.validation->evaluate(*model, {.batch_size = batch});
    EXPECT_NEAR(figures_of(result).at("loss"), loss, 1e-5) << batch;
    EXPECT_NEAR(figures_of(result).at("accuracy"), right, 1e-12) << batch;
  }
  EXPECT_EQ(data.validation->evaluate(*model, {.batch_size = 8, .most_tokens = 30}).predictions(), 30);
}

TEST(Classification, ContinuesFromAnyPosition) {
  expect_exact_positions(sequence_classification(), listops_config(), 80);
}

TEST(Classification, ReadsTextsAndPairsOfThem) {
  const tiny::Folder folder;
  config::Config config = listops_config();
  config.data = {};
  tiny::set(config, "model.vocabulary_size=256 tokenizer.vocabulary_size=256 model.n_classes=2 model.paired=true");
  write_text_file(folder / "pairs.tsv", "label\ttext\ttext2\n1\tone\tanother one\n0\ttwo\tthree\n");
  config.data.train = config.data.validation = {(folder / "pairs.tsv").string()};
  config.train.batch_size = 2;
  const models::Batch batch = sequence_classification().open(config, folder.path()).training->next();
  EXPECT_EQ(batch.at("tokens").sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(batch.at("second").sizes(), (at::IntArrayRef{2, 11}));
  EXPECT_EQ(batch.tokens, 2 * (3 + 11));
  const std::int64_t one = batch.at("label")[0].item<std::int64_t>() == 1 ? 0 : 1;
  EXPECT_EQ(batch.at("tokens")[one][0].item<std::int64_t>(), 'o');
  EXPECT_EQ(batch.at("second")[1 - one][5].item<std::int64_t>(), 0) << "padding";
}

TEST(Classification, EvaluatesAFile) {
  const tiny::Folder folder;
  const config::Config config = listops_config();
  write_text_file(folder / "some.tsv", "3\t[MAX 3 1 ]\n0\t0\n");
  const auto model = models::make_model(config.model, 5);
  const auto data = sequence_classification().open_evaluation(
      {.config = config, .tokenizer = nullptr, .files = {(folder / "some.tsv").string()}, .cache = folder.path()});
  EXPECT_EQ(data->evaluate(*model, {}).predictions(), 2);
  const auto own = sequence_classification().open_evaluation(
      {.config = config, .tokenizer = nullptr, .files = {}, .cache = folder.path()});
  const TaskData opened = sequence_classification().open(config, folder.path());
  EXPECT_EQ(figures_of(own->evaluate(*model, {})), figures_of(opened.validation->evaluate(*model, {})));
}

// The labels are sorted, so the start of the file has only one label.
TEST(Classification, APartHasTheMeanOfTheWholeFile) {
  const tiny::Folder folder;
  const config::Config config = listops_config();
  const auto loss = [&](int threes, int zeros, std::int64_t most) {
    std::string rows;
    for (int i = 0; i < threes + zeros; ++i) {
      rows += fmt::format("{}\t[MAX 3 1 ]\n", i < threes ? 3 : 0);
    }
    write_text_file(folder / "some.tsv", rows);
    const auto data = sequence_classification().open_evaluation(
        {.config = config, .tokenizer = nullptr, .files = {(folder / "some.tsv").string()}, .cache = folder.path()});
    return figures_of(data->evaluate(*models::make_model(config.model, 5), {.most_tokens = most})).at("loss");
  };
  EXPECT_GT(std::abs(loss(20, 0, 0) - loss(0, 20, 0)), 0.01);
  EXPECT_NEAR(loss(20, 20, 10), loss(20, 20, 0), 1e-5);
}

// Accuracies over a few hundred expressions can be equal although the losses differ.
TEST(Classification, ModelsOfListOpsAreComparedByTheLoss) {
  const Task& task = task_for(listops_config(), "test");
  EXPECT_EQ(headline(task.figures()).name, "loss");
  EXPECT_EQ(task.figures().front().name, "loss");
  EXPECT_EQ(shown_in_tables(task.figures()).size(), 2U);
  EXPECT_EQ(headline(task_for(tiny::changed(listops_config(), "data.generator=none"), "test").figures()).name,
            "accuracy");
}

TEST(Classification, NamesInvalidSettings) {
  for (const auto& [keys, part] : {std::pair("model.vocabulary_size=12", "model.vocabulary_size: must be at least 16"),
                                   {"model.context_length=20", "model.context_length: must be at least 50"},
                                   {"model.padding_token=3", "model.padding_token"},
                                   {"model.n_classes=2", "10 classes"},
                                   {"data.train=[\"there.tsv\"]", "data.validation: must name files"},
                                   {"data.generator=none model.vocabulary_size=256", "data.train: names no files"},
                                   {"train.batch_size=1000", "too few for a batch of train.batch_size = 1000"}}) {
    EXPECT_HAS(refusal(tiny::changed(listops_config(), keys)), part);
  }
}

}  // namespace headroom::tasks::classification_test
