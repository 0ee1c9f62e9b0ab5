// Small data sets, and checks that apply to every classification task.
#pragma once

#include "data/synthetic/listops.h"
#include "folder_test.h"
#include "tiny/files.h"
#include "training/tasks/classes/classification.h"

namespace headroom::tasks::small_classes {

inline Figures figures_of(const Evaluation& evaluation) {
  return sequence_classification().figures_of(evaluation.sums);
}

// Returns the config of a few hundred short expressions and a model with every dropout enabled.
inline config::Config listops_config() {
  config::Config config = tiny::config();
  tiny::set(config,
            "model.kind=classifier model.vocabulary_size=16 model.context_length=50 model.memory_length=0 "
            "model.n_classes=10 model.d_head_hidden=12 model.attention.position=learned tokenizer.vocabulary_size=16 "
            "data.generator=listops data.generated_train=300 data.generated_validation=70");
  return config;
}

inline config::Config translation_config() {
  config::Config config;
  tiny::set(config,
            "model.kind=encoder_decoder model.vocabulary_size=280 tokenizer.vocabulary_size=280 model.n_layers=1 "
            "model.d_model=24 model.context_length=48 model.attention.n_heads=2 model.attention.d_head=12 "
            "model.attention.position=sinusoidal model.mlp.d_hidden=48 train.batch_size=8");
  return config;
}

inline config::Config images_config(const tiny::Folder& folder) {
  config::Config config = tiny::config();
  tiny::set(config,
            "model.kind=vision model.image_size=4 model.patch_size=2 model.image_channels=1 model.context_length=4 "
            "model.memory_length=0 model.n_classes=3 model.attention.position=sinusoidal data.augment_shift=1 "
            "data.augment_flip=true");
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

inline bool same(const models::Batch& a, const models::Batch& b) {
  return a.tensors.size() == b.tensors.size() &&
         std::all_of(a.tensors.begin(), a.tensors.end(),
                     [&](const auto& entry) { return at::equal(entry.second, b.at(entry.first)); });
}

// `steps` must extend beyond the end of an epoch.
inline void expect_exact_positions(const Task& task, const config::Config& config, int steps) {
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

// Returns the error message of opening the data.
inline std::string refusal(const config::Config& config) {
  return user_error_of([&] { task_for(config, "train").open(config, "."); });
}

}  // namespace headroom::tasks::small_classes
