#include "class_data.h"
#include "headroom/core/error.h"
#include "headroom/core/random.h"
#include "headroom/data/images.h"
#include "headroom/tasks/classification.h"

namespace headroom::tasks {
namespace {

namespace fs = std::filesystem;

class ImageExamples : public ClassExamples {
 public:
  ImageExamples(data::ImageSet set, const config::Config& config)
      : set_(std::move(set)),
        patches_(config.model.patches()),
        changed_(data::picture_options(config.data, set_.channels())),
        plain_(changed_) {
    plain_.shift = 0;
    plain_.flip = false;
  }

  std::int64_t size() const override { return set_.size(); }
  std::string identity() const override { return set_.identity(); }
  std::int64_t length(std::int64_t /*i*/) const override { return 0; }
  models::Batch batch(std::span<const std::int64_t> examples) const override { return batch_of(examples, plain_, 0); }
  models::Batch training_batch(std::span<const std::int64_t> examples, std::uint64_t seed) const override {
    return batch_of(examples, changed_, seed);
  }

 private:
  models::Batch batch_of(std::span<const std::int64_t> examples, const data::Picture& picture,
                         std::uint64_t seed) const {
    const at::Tensor images = at::empty({std::ssize(examples), set_.channels(), set_.side(), set_.side()}, at::kFloat);
    float* out = images.data_ptr<float>();
    for (const std::int64_t i : examples) {
      data::copy_picture(set_, i, picture, mix(seed, static_cast<std::uint64_t>(i)), out);
      out += set_.bytes_each();
    }
    models::Batch batch = labelled_batch(set_.labels(), examples, patches_);
    batch.tensors["images"] = images;
    return batch;
  }

  data::ImageSet set_;
  std::int64_t patches_;
  data::Picture changed_, plain_;
};

std::shared_ptr<const ClassExamples> read(const std::vector<std::string>& files, const config::Config& config,
                                          std::string_view key) {
  if (files.empty()) {
    misuse("{}: names no files: pictures come from idx or CIFAR files, or folders of PNG and JPEG files", key);
  }
  const config::ModelOptions& model = config.model;
  return std::make_shared<ImageExamples>(data::read_images(files, {.size = model.image_size,
                                                                   .channels = model.image_channels,
                                                                   .n_classes = model.n_classes,
                                                                   .classes = config.data.classes,
                                                                   .skip_bad = config.data.skip_bad_rows}),
                                         config);
}

class ImageClassification : public ClassTask {
 public:
  std::string_view name() const override { return "image classification"; }
  std::string_view protocol() const override {
    return "accuracy is the fraction of the validation pictures whose likeliest class is the right one; loss is their "
           "mean cross-entropy; validation pictures are not augmented";
  }
  TaskData open(const config::Config& config, const fs::path& /*cache*/) const override {
    TaskData opened;
    opened.training = train_on(read(config.data.train, config, "data.train"), config);
    opened.validation = evaluate_on(read(config.data.validation, config, "data.validation"));
    return opened;
  }
  std::unique_ptr<EvaluationData> open_evaluation(const EvaluationRequest& request) const override {
    const config::Config& config = request.config;
    return evaluate_on(read(request.files.empty() ? config.data.validation : request.files, config, "data.validation"));
  }
};

}  // namespace

const Task& image_classification() {
  static const ImageClassification kTask;
  return kTask;
}

}  // namespace headroom::tasks
