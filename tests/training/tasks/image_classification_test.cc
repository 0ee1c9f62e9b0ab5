// Tests classification of images in memory, and of images in folders, which are read on demand.

#include <cmath>

#include "headroom/models/classifier.h"
#include "small_classes.h"

namespace headroom::tasks::picture_classification_test {

using namespace small_classes;

TEST(PictureClassification, ContinuesFromAnyPosition) {
  const tiny::Folder folder;
  expect_exact_positions(image_classification(), images_config(folder), 12);
}

TEST(PictureClassification, AugmentsOnlyTrainingImages) {
  const tiny::Folder folder;
  config::Config config = images_config(folder);
  config.train.batch_size = 40;  // one batch per epoch: the same images in another order
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

// A new model's head is 0, so all classes are equally likely. Random values make them differ, also between images.
void tell_classes_apart(models::Model& model, const std::vector<double>& bias) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  model.parameters().at("head.w_down").normal_(0.0, 0.5);
  model.parameters().at("head.b_down").copy_(at::tensor(bias));
}

TEST(PictureClassification, CountsTheFiveLikeliestOfMoreClasses) {
  const tiny::Folder folder;
  config::Config config = images_config(folder);
  const auto evaluate = [&](std::int64_t classes) {
    config.model.n_classes = classes;
    const auto model = models::make_model(config.model, 5);
    std::vector<double> bias;  // label 0 is the likeliest class, 1 about the fifth, and 2 the last
    for (std::int64_t c = 0; c < classes; ++c) {
      bias.push_back(-3.0 * static_cast<double>(c < 2 ? 4 * c : c == 2 ? 19 : c < 6 ? c - 2 : c - 1));
    }
    tell_classes_apart(*model, bias);
    const TaskData data = image_classification().open(config, folder.path());
    const Figures figures = figures_of(data.validation->evaluate(*model, {.batch_size = 7}));
    double right = 0.0, among = 0.0;
    config.train.batch_size = 40;
    const config::Config plain = tiny::changed(config, "data.augment_shift=0 data.augment_flip=false");
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

TEST(PictureClassification, NeedsFilesToValidateOn) {
  const tiny::Folder folder;
  config::Config config = images_config(folder);
  config.data.validation.clear();
  EXPECT_HAS(refusal(config), "data.validation: names no files");
}

// Writes a folder of grey images of several sizes, whose brightest row encodes the label. One image can be corrupt.
config::Config in_folder(const tiny::Folder& folder, bool with_damage = false) {
  config::Config config = images_config(folder);
  Random random(2);
  for (int number = 0; number < 40; ++number) {
    const auto label = static_cast<int>(random.below(3)), side = 4 + static_cast<int>(random.below(5));
    std::string picture = with_damage && number == 17 ? "P5 x" : fmt::format("P5 {} {} 255\n", side, side);
    for (int pixel = 0; pixel < side * side; ++pixel) {
      picture += static_cast<char>(random.below(50) + (pixel / side * 4 / side == label ? 150 : 0));
    }
    const std::filesystem::path of_class = folder / fmt::format("set/{}", label);
    std::filesystem::create_directories(of_class);
    write_text_file(of_class / fmt::format("{}.pgm", number), picture);
  }
  config.data.train = config.data.validation = {(folder / "set").string()};
  tiny::set(config, "data.augment_crop=0.3 data.randaugment=2 data.mixup=0.4");
  return config;
}

TEST(PicturesInFolders, ContinueFromAnyPositionWithAnyThreads) {
  const tiny::Folder folder;
  config::Config config = in_folder(folder);
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

// With several ranks, a rank's rows of a batch equal those of a single rank.
TEST(PicturesInFolders, RowsThatAreNotNeededStayEmpty) {
  const tiny::Folder folder;
  config::Config config = in_folder(folder);
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

TEST(PicturesInFolders, DamagedOnesStopOrAreLeftOut) {
  const tiny::Folder folder;
  config::Config config = in_folder(folder, /*with_damage=*/true);
  config.train.batch_size = 40;
  const auto model = models::make_model(config.model, 5);
  const std::string damage = "is a damaged PNM file";
  {
    const TaskData data = image_classification().open(config, folder.path());
    EXPECT_HAS(user_error_of([&] { data.training->next(); }), damage);
    EXPECT_HAS(user_error_of([&] { data.validation->evaluate(*model, {}); }), damage);
  }
  tiny::set(config,
            "data.skip_bad_rows=true data.augment_crop=0.0 data.mixup=0.0 data.randaugment=0 data.augment_shift=0 "
            "data.augment_flip=false");
  const TaskData data = image_classification().open(config, folder.path());
  const at::Tensor images = data.training->next().at("images").flatten(1);
  EXPECT_EQ(images.size(0), 40);
  EXPECT_EQ(std::get<0>(at::unique_dim(images, 0)).size(0), 39) << "the picture after it comes twice";
  EXPECT_EQ(data.validation->evaluate(*model, {.batch_size = 16}).predictions(), 39);
  EXPECT_EQ(data.validation->evaluate(*model, {.batch_size = 1}).predictions(), 39) << "an empty batch";
}

TEST(PicturesInFolders, AreMixedWithTheirNeighbours) {
  const tiny::Folder folder;
  config::Config config = in_folder(folder);
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
  // The loss uses the mixed labels as probabilities, smoothed or not.
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

TEST(Mixup, SharesMatchBeta) {
  constexpr int kDraws = 4000;
  for (const double alpha : {0.2, 1.0, 3.0}) {
    double mean = 0.0, square = 0.0;
    for (int i = 0; i < kDraws; ++i) {
      const double share = mixup_lambda(alpha, static_cast<std::uint64_t>(i));
      ASSERT_TRUE(share >= 0.5 && share <= 1.0);
      mean += share / kDraws;
      square += (share - 0.5) * (share - 0.5) / kDraws;  // symmetric
    }
    EXPECT_NEAR(square, 1.0 / (4.0 * (2.0 * alpha + 1.0)), 0.006) << alpha;
    if (alpha == 1.0) {
      EXPECT_NEAR(mean, 0.75, 0.01) << "evenly from 0.5 to 1";
    }
  }
  EXPECT_EQ(mixup_lambda(1e-6, 3), 1.0);
}

}  // namespace headroom::tasks::picture_classification_test
