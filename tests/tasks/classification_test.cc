#include "headroom/tasks/classification.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "data/archives.h"
#include "folder_test.h"
#include "headroom/core/error.h"
#include "headroom/data/listops.h"
#include "headroom/models/class_model.h"
#include "store/tiny.h"
#include "tasks/mixup.h"

namespace headroom::tasks {
namespace classification_test {

Figures figures_of(const Evaluation& evaluation) {
  return sequence_classification().figures_of(evaluation.sums);
}

// A few hundred short expressions and a model that has every dropout on.
config::Config listops() {
  config::Config config = tiny::config();
  config.model.kind = config::ModelKind::classifier;
  config.model.vocabulary_size = data::listops::kVocabulary;
  config.model.context_length = 50;
  config.model.memory_length = 0;
  config.model.n_classes = 10;
  config.model.d_head_hidden = 12;
  config.model.attention.position = "learned";
  config.tokenizer.vocabulary_size = data::listops::kVocabulary;
  config.data.generator = config::Generator::listops;
  config.data.generated_train = 300;
  config.data.generated_validation = 70;
  return config;
}

config::Config pictures(const tiny::Folder& folder) {
  config::Config config = tiny::config();
  config.model.kind = config::ModelKind::vision;
  config.model.image_size = 4;
  config.model.patch_size = 2;
  config.model.image_channels = 1;
  config.model.context_length = 4;
  config.model.memory_length = 0;
  config.model.n_classes = 3;
  config.model.attention.position = "sinusoidal";
  config.data.augment_shift = 1;
  config.data.augment_flip = true;
  std::string images("\0\0\x08\x03\0\0\0\x28\0\0\0\x04\0\0\0\x04", 16), labels("\0\0\x08\x01\0\0\0\x28", 8);
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    const auto label = static_cast<char>(random.below(3));
    labels += label;
    for (int pixel = 0; pixel < 16; ++pixel) {
      images += static_cast<char>(random.below(50) + (pixel / 4 == label ? 150 : 0));
    }
  }
  write_text_file(folder / "images", images);
  write_text_file(folder / "labels", labels);
  config.data.train = config.data.validation = {(folder / "images").string(), (folder / "labels").string()};
  return config;
}

// Every attention whose results could depend on what stands beyond a sequence's end.
std::vector<config::ModelOptions> models_to_pad() {
  std::vector<config::ModelOptions> models(7, listops().model);
  models[1].attention.score = "gaussian_mixture";
  models[1].attention.projection = "dense";
  models[2].attention.projection = "dense";
  models[2].attention.position = "relative";
  models[3].attention.projection = "dense";
  models[3].attention.composition = "dynamic";
  models[4].attention.projection = "dense";
  models[4].attention.score = "linear";
  models[5] = models[1];
  models[5].attention.position = "relative";
  models[6].attention.projection = "routed_heads";
  return models;
}

TEST(Classification, PaddingNeverChangesAResult) {
  const at::NoGradGuard no_grad;
  const tiny::Folder folder;
  config::Config config = listops();
  const TaskData data = sequence_classification().open(config, folder.path());
  models::Batch batch = data.training->next();
  const at::Tensor tokens = batch.at("tokens");
  ASSERT_LT(tokens.size(1), 50);
  for (const config::ModelOptions& options : models_to_pad()) {
    const auto model = models::make_model(options, 5, at::kDouble);
    const auto& chooser = dynamic_cast<const models::ClassModel&>(*model);
    const at::Tensor logits = chooser.class_logits(batch, {});
    models::Batch padded = batch;
    padded.tensors["tokens"] = at::constant_pad_nd(tokens, {0, 50 - tokens.size(1)}, 0);
    EXPECT_LE((chooser.class_logits(padded, {}) - logits).abs().max().item<double>(), 1e-12);
    for (std::int64_t row = 0; row < batch.rows(); ++row) {
      const std::int64_t length = tokens[row].ne(0).sum().item<std::int64_t>();
      models::Batch alone = batch.narrow(row, 1);
      alone.tensors["tokens"] = tokens.narrow(0, row, 1).narrow(1, 0, length);
      EXPECT_LE((chooser.class_logits(alone, {})[0] - logits[row]).abs().max().item<double>(), 1e-12);
    }
  }
}

TEST(Classification, EvaluationIsTheMeanOverExamplesInAnyBatches) {
  const tiny::Folder folder;
  const config::Config config = listops();
  const auto model = models::make_model(config.model, 5);
  const TaskData data = sequence_classification().open(config, folder.path());
  const Evaluation alone = data.validation->evaluate(*model, {.batch_size = 1});
  EXPECT_EQ(alone.predictions(), 70);
  // By definition.
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

bool same(const models::Batch& a, const models::Batch& b) {
  return a.tensors.size() == b.tensors.size() &&
         std::all_of(a.tensors.begin(), a.tensors.end(),
                     [&](const auto& entry) { return at::equal(entry.second, b.at(entry.first)); });
}

// `steps` crosses the end of an epoch.
void expect_exact_positions(const Task& task, const config::Config& config, int steps) {
  const tiny::Folder folder;
  const TaskData whole = task.open(config, folder.path()), part = task.open(config, folder.path());
  EXPECT_EQ(whole.training->identity(), part.training->identity());
  EXPECT_EQ(whole.tokenizer, nullptr);
  for (int i = 0; i < steps; ++i) {
    const data::DataPosition position = whole.training->position();
    const models::Batch expected = whole.training->next();
    EXPECT_EQ(expected.n_targets(), config.train.batch_size);
    if (i % 3 == 0) {
      part.training->seek(position);
      EXPECT_TRUE(same(part.training->next(), expected)) << i;
    }
  }
}

TEST(Classification, GoesOnFromAnyPosition) {
  expect_exact_positions(sequence_classification(), listops(), 80);
  const tiny::Folder folder;
  expect_exact_positions(image_classification(), pictures(folder), 12);
}

TEST(Classification, AugmentsTrainingPicturesAlone) {
  const tiny::Folder folder;
  config::Config config = pictures(folder);
  config.train.batch_size = 40;  // an epoch a batch: the same pictures in another order
  const auto brightness = [&](const TaskData& data) {
    const at::Tensor images = data.training->next().at("images");
    return std::get<0>(images.sum({1, 2, 3}).sort());
  };
  const TaskData augmented = image_classification().open(config, folder.path());
  EXPECT_FALSE(at::equal(brightness(augmented), brightness(augmented))) << "moved out of the picture anew each epoch";
  config.data.augment_shift = 0;
  config.data.augment_flip = false;
  const TaskData plain = image_classification().open(config, folder.path());
  EXPECT_TRUE(at::allclose(brightness(plain), brightness(plain)));
  const auto model = models::make_model(config.model, 5);
  EXPECT_EQ(figures_of(plain.validation->evaluate(*model, {})), figures_of(augmented.validation->evaluate(*model, {})));
}

// The head of a new model is zero, so that it finds all classes alike: now they differ, and from picture to picture.
void tell_classes_apart(models::Model& model, const std::vector<double>& bias) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  model.parameters().at("head.w_down").normal_(0.0, 0.5);
  model.parameters().at("head.b_down").copy_(at::tensor(bias));
}

// Shards of grey pictures of several sizes, whose brightest row tells their label; in their middle, one that is
// damaged.
config::Config shards(const tiny::Folder& folder, bool with_damage = false) {
  config::Config config = pictures(folder);
  Random random(2);
  int number = 0;
  for (const int count : {9, 20, 11}) {
    std::string archive;
    for (int i = 0; i < count; ++i, ++number) {
      const auto label = static_cast<int>(random.below(3)), side = 4 + static_cast<int>(random.below(5));
      std::string picture = with_damage && number == 17 ? "P5 x" : fmt::format("P5 {} {} 255\n", side, side);
      for (int pixel = 0; pixel < side * side; ++pixel) {
        picture += static_cast<char>(random.below(50) + (pixel / side * 4 / side == label ? 150 : 0));
      }
      archive += data::tar_member(fmt::format("{}.pgm", number), picture);
      archive += data::tar_member(fmt::format("{}.cls", number), std::to_string(label));
    }
    write_text_file(folder / fmt::format("{}.tar", number), archive + data::kTarEnd);
  }
  config.data.train = config.data.validation = {(folder / "*.tar").string()};
  config.data.augment_crop = 0.3;
  config.data.randaugment = 2;
  config.data.mixup = 0.4;
  config.data.shuffle_buffer = 16;
  return config;
}

TEST(PicturesInShards, GoOnFromAnyPositionWithAnyThreads) {
  const tiny::Folder folder;
  config::Config config = shards(folder);
  config.train.batch_size = 8;
  config.data.decode_threads = 1;
  expect_exact_positions(image_classification(), config, 12);
  const TaskData one = image_classification().open(config, folder.path());
  config.data.decode_threads = 4;
  const TaskData four = image_classification().open(config, folder.path());
  EXPECT_EQ(one.training->identity(), four.training->identity());
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(one.training->position(), four.training->position());
    EXPECT_TRUE(same(one.training->next(), four.training->next())) << i;
  }
  const auto model = models::make_model(config.model, 5);
  EXPECT_EQ(figures_of(one.validation->evaluate(*model, {})), figures_of(four.validation->evaluate(*model, {})));
}

// What a process of several reads of a batch is what one process has there.
TEST(PicturesInShards, RowsThatAreNotNeededStayEmpty) {
  const tiny::Folder folder;
  config::Config config = shards(folder);
  config.train.batch_size = 8;
  const TaskData whole = image_classification().open(config, folder.path()),
                 part = image_classification().open(config, folder.path());
  part.training->next();
  whole.training->next();
  part.training->need_only({false, false, true, true, false, false, false, false});
  for (int i = 0; i < 6; ++i) {
    const models::Batch all = whole.training->next(), some = part.training->next();
    EXPECT_TRUE(same(some.narrow(2, 2), all.narrow(2, 2))) << i;
    EXPECT_EQ(some.at("images")[6].abs().sum().item<double>(), 0.0);
    EXPECT_EQ(some.n_targets(), 8);
  }
}

TEST(PicturesInShards, DamagedOnesStopOrAreLeftOut) {
  const tiny::Folder folder;
  config::Config config = shards(folder, /*with_damage=*/true);
  config.train.batch_size = 40;
  const auto model = models::make_model(config.model, 5);
  const std::string damage = "is a damaged PNM file";
  {
    const TaskData data = image_classification().open(config, folder.path());
    EXPECT_HAS(misuse_of([&] { data.training->next(); }), damage);
    EXPECT_HAS(misuse_of([&] { data.validation->evaluate(*model, {}); }), damage);
  }
  config.data.skip_bad_rows = true;
  config.data.augment_crop = config.data.mixup = 0.0;
  config.data.randaugment = config.data.augment_shift = 0;
  config.data.augment_flip = false;
  const TaskData data = image_classification().open(config, folder.path());
  const at::Tensor images = data.training->next().at("images").flatten(1);
  EXPECT_EQ(images.size(0), 40);
  EXPECT_EQ(std::get<0>(at::unique_dim(images, 0)).size(0), 39) << "the picture after it comes twice";
  EXPECT_EQ(data.validation->evaluate(*model, {.batch_size = 16}).predictions(), 39);
  EXPECT_EQ(data.validation->evaluate(*model, {.batch_size = 1}).predictions(), 39) << "an empty batch";
}

TEST(PicturesInShards, AreMixedWithTheirNeighbours) {
  const tiny::Folder folder;
  config::Config config = shards(folder);
  config.train.batch_size = 8;
  const models::Batch mixed = image_classification().open(config, folder.path()).training->next();
  config.data.mixup = 0.0;
  const models::Batch plain = image_classification().open(config, folder.path()).training->next();
  const at::Tensor own = plain.at("images"), label = plain.at("label");
  const double share = mixed.at("label_share")[0].item<double>();
  EXPECT_TRUE(share >= 0.5 && share < 1.0) << share;
  EXPECT_TRUE(at::allclose(mixed.at("images"), own * share + own.roll(1, 0) * (1.0 - share), 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(mixed.at("label"), label));
  EXPECT_TRUE(at::equal(mixed.at("other_label"), label.roll(1)));
  // The loss is that with the mixed labels as probabilities, smoothed or not.
  const auto model = models::make_model(config.model, 5, at::kDouble);
  tell_classes_apart(*model, {0.3, -0.2, 0.1});
  for (const double smoothing : {0.0, 0.1}) {
    models::Batch batch = mixed;
    batch.label_smoothing = smoothing;
    models::Memory memory;
    const double loss = model->loss(batch, memory, {}).cross_entropy.item<double>();
    const at::Tensor logp =
        dynamic_cast<const models::ClassModel&>(*model).class_logits(batch, {}).to(at::kDouble).log_softmax(1);
    const at::Tensor target =
        at::one_hot(label, 3).to(at::kDouble) * share + at::one_hot(label.roll(1), 3).to(at::kDouble) * (1.0 - share);
    const at::Tensor smooth = target * (1.0 - smoothing) + smoothing / 3.0;
    EXPECT_NEAR(loss, -(logp * smooth).sum(1).mean().item<double>(), 1e-7);
  }
}

TEST(Mixup, SharesAreThoseOfBeta) {
  constexpr int kDraws = 4000;
  for (const double alpha : {0.2, 1.0, 3.0}) {
    double mean = 0.0, square = 0.0;
    for (int i = 0; i < kDraws; ++i) {
      const double share = mixing_share(alpha, static_cast<std::uint64_t>(i));
      ASSERT_TRUE(share >= 0.5 && share <= 1.0);
      mean += share / kDraws;
      square += (share - 0.5) * (share - 0.5) / kDraws;  // the same of either side
    }
    EXPECT_NEAR(square, 1.0 / (4.0 * (2.0 * alpha + 1.0)), 0.006) << alpha;
    if (alpha == 1.0) {
      EXPECT_NEAR(mean, 0.75, 0.01) << "evenly from 0.5 to 1";
    }
  }
  EXPECT_EQ(mixing_share(1e-6, 3), 1.0);
}

TEST(Classification, CountsTheFiveLikeliestOfMoreClasses) {
  const tiny::Folder folder;
  config::Config config = pictures(folder);
  const auto evaluate = [&](std::int64_t classes) {
    config.model.n_classes = classes;
    const auto model = models::make_model(config.model, 5);
    std::vector<double> bias;  // of the labels 0 is the likeliest class, 1 about the fifth, and 2 the last
    for (std::int64_t c = 0; c < classes; ++c) {
      bias.push_back(-3.0 * static_cast<double>(c < 2 ? 4 * c : c == 2 ? 19 : c < 6 ? c - 2 : c - 1));
    }
    tell_classes_apart(*model, bias);
    const TaskData data = image_classification().open(config, folder.path());
    const Figures figures = figures_of(data.validation->evaluate(*model, {.batch_size = 7}));
    double right = 0.0, among = 0.0;
    config.train.batch_size = 40;
    config::Config plain = config;
    plain.data.augment_shift = 0;
    plain.data.augment_flip = false;
    const models::Batch batch = image_classification().open(plain, folder.path()).training->next();
    const at::NoGradGuard no_grad;
    const at::Tensor logits = dynamic_cast<const models::ClassModel&>(*model).class_logits(batch, {});
    for (std::int64_t row = 0; row < 40; ++row) {
      const at::Tensor larger = logits[row].gt(logits[row][batch.at("label")[row].item<std::int64_t>()]);
      const auto before = larger.sum().item<std::int64_t>();
      right += before < 1 ? 1.0 / 40.0 : 0.0;
      among += before < 5 ? 1.0 / 40.0 : 0.0;
    }
    EXPECT_NEAR(figures.at("accuracy"), right, 1e-9);
    if (figures.contains("accuracy_top5")) {
      EXPECT_NEAR(figures.at("accuracy_top5"), among, 1e-9);
      EXPECT_GT(among, right);
      EXPECT_LT(among, 1.0);
    }
    return figures.contains("accuracy_top5");
  };
  EXPECT_FALSE(evaluate(5));
  EXPECT_TRUE(evaluate(20));
}

TEST(Classification, ReadsTextsAndPairsOfThem) {
  const tiny::Folder folder;
  config::Config config = listops();
  config.data = {};
  config.model.vocabulary_size = config.tokenizer.vocabulary_size = 256;
  config.model.n_classes = 2;
  config.model.paired = true;
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
  const config::Config config = listops();
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

std::string refusal(const config::Config& config) {
  try {
    task_for(config, "train").open(config, ".");
  } catch (const MisuseError& error) {
    return error.what();
  }
  return "no refusal";
}

// Accuracies of a few hundred expressions are alike where losses are not.
TEST(Classification, ModelsOfListOpsAreComparedByTheLoss) {
  const Task& task = task_for(listops(), "test");
  EXPECT_EQ(headline(task.figures()).name, "loss");
  EXPECT_EQ(task.figures().front().name, "loss");
  EXPECT_EQ(shown_in_tables(task.figures()).size(), 2U);
  config::Config texts = listops();
  texts.data.generator = config::Generator::none;
  EXPECT_EQ(headline(task_for(texts, "test").figures()).name, "accuracy");
}

TEST(Classification, NamesWhatDoesNotFit) {
  config::Config config = listops();
  config.model.vocabulary_size = 12;
  EXPECT_NE(refusal(config).find("model.vocabulary_size: must be at least 16"), std::string::npos);
  config = listops();
  config.model.context_length = 20;
  EXPECT_NE(refusal(config).find("model.context_length: must be at least 50"), std::string::npos);
  config = listops();
  config.model.padding_token = 3;
  EXPECT_NE(refusal(config).find("model.padding_token"), std::string::npos);
  config = listops();
  config.model.n_classes = 2;
  EXPECT_NE(refusal(config).find("10 classes"), std::string::npos);
  config = listops();
  config.data.train = {"there.tsv"};
  EXPECT_NE(refusal(config).find("data.validation: must name files"), std::string::npos);
  config = listops();
  config.data = {};
  config.model.vocabulary_size = 256;
  EXPECT_NE(refusal(config).find("data.train: names no files"), std::string::npos);
  config = listops();
  config.train.batch_size = 1000;
  EXPECT_NE(refusal(config).find("too few for a batch of train.batch_size = 1000"), std::string::npos);
  const tiny::Folder folder;
  config = pictures(folder);
  config.data.validation.clear();
  EXPECT_NE(refusal(config).find("data.validation: names no files"), std::string::npos);
}

}  // namespace classification_test
}  // namespace headroom::tasks
