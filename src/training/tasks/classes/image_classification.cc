#include <algorithm>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "classification.h"
#include "data/images/augmentation.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"

namespace headroom::tasks {

namespace {

// Adapts Random to std::uniform_random_bit_generator.
struct Bits {
  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return UINT64_MAX; }
  result_type operator()() { return random.next(); }
  Random random;
};

}  // namespace

double mixup_lambda(double alpha, std::uint64_t seed) {
  Bits bits{Random(seed)};
  std::gamma_distribution<double> gamma(alpha);
  const double a = gamma(bits), b = gamma(bits);
  return a + b > 0.0 ? std::max(a, b) / (a + b) : 1.0;  // with a tiny alpha both may underflow to 0
}

void mix_rows(models::Batch& batch, double lambda, std::size_t threads) {
  constexpr std::int64_t kSlices = 64;
  const at::Tensor images = batch.at("images"), label = batch.at("label");
  const std::int64_t rows = images.size(0), row_size = images.numel() / rows;
  const auto own = static_cast<float>(lambda), other = static_cast<float>(1.0 - lambda);
  float* const all = images.data_ptr<float>();
  in_parallel(static_cast<std::size_t>(kSlices), threads, [&](std::size_t slice) {
    const std::int64_t begin = row_size * static_cast<std::int64_t>(slice) / kSlices,
                       end = row_size * (static_cast<std::int64_t>(slice) + 1) / kSlices;
    const float* const last = all + (rows - 1) * row_size;
    const std::vector<float> last_row(last + begin, last + end);
    for (std::int64_t row = rows - 1; row >= 0; --row) {
      float* const mine = all + row * row_size + begin;
      const float* const before = row == 0 ? last_row.data() : mine - row_size;
      std::transform(mine, mine + (end - begin), before, mine,
                     [own, other](float a, float b) { return own * a + other * b; });
    }
  });
  batch.tensors["other_label"] = label.roll(1);
  batch.tensors["label_share"] = at::full({rows}, lambda, at::kFloat);
}

namespace {

namespace fs = std::filesystem;

class ImageExamples : public ClassExamples {
 public:
  ImageExamples(std::shared_ptr<const data::ImageDataset> dataset, const config::Config& config)
      : dataset_(std::move(dataset)),
        model_(config.model),
        changed_(data::augmentation_options(config.data, config.model.image_channels)),
        plain_(changed_.without_changes()),
        mixup_(config.data.mixup),
        skip_bad_(config.data.skip_bad_rows),
        threads_(static_cast<std::size_t>(decode_threads(config.data))) {}
  ~ImageExamples() override {
    if (!unreadable_.empty()) {
      log_warning("{} of {} images could not be read and were skipped", unreadable_.size(), size());
    }
  }
  ImageExamples(const ImageExamples&) = delete;
  ImageExamples& operator=(const ImageExamples&) = delete;

  std::int64_t size() const override { return dataset_->size(); }
  std::string identity() const override { return dataset_->identity(); }
  std::int64_t length(std::int64_t /*i*/) const override { return 0; }

  // Leaves out images that cannot be read.
  models::Batch batch(std::span<const std::int64_t> examples) const override {
    const at::Tensor images = empty_images(std::ssize(examples));
    std::vector<std::int32_t> labels(examples.size(), kBad);
    in_parallel(examples.size(), threads_for(examples.size()), [&](std::size_t row) {
      if (const auto image = read(examples[row])) {
        data::augment(*image, plain_, model_.image_size, 0, row_of(images, row));
        labels[row] = dataset_->label(examples[row]);
      }
    });
    std::vector<std::int64_t> good;
    for (std::int64_t row = 0; row < std::ssize(labels); ++row) {
      if (labels[static_cast<std::size_t>(row)] != kBad) {
        good.push_back(row);
      }
    }
    models::Batch batch = labelled_batch(labels, good, model_.patches());
    batch.tensors["images"] =
        good.size() == examples.size() ? images : images.index_select(0, at::tensor(at::ArrayRef<std::int64_t>(good)));
    return batch;
  }

  // Replaces an image that cannot be read by the next one.
  models::Batch training_batch(const TrainingRows& rows) const override {
    const at::Tensor images = empty_images(std::ssize(rows.examples));
    std::vector<std::int32_t> labels(rows.examples.size(), 0);
    in_parallel(rows.examples.size(), threads_for(rows.examples.size()), [&](std::size_t row) {
      if (is_needed(rows.needed, row)) {
        const std::int64_t example = rows.examples[row];
        const auto [image, label] = read_or_next(example);
        data::augment(image, changed_, model_.image_size, mix(rows.seed, static_cast<std::uint64_t>(example)),
                      row_of(images, row));
        labels[row] = label;
      } else {
        std::fill_n(row_of(images, row), row_size(), 0.0F);
      }
    });
    std::vector<std::int64_t> all(labels.size());
    std::iota(all.begin(), all.end(), 0);
    models::Batch batch = labelled_batch(labels, all, model_.patches());
    batch.tensors["images"] = images;
    if (mixup_ > 0.0) {
      mix_rows(batch, mixup_lambda(mixup_, mix(rows.seed, "mixup")), threads_);
    }
    return batch;
  }

 private:
  static constexpr std::int32_t kBad = -1;

  static std::int64_t decode_threads(const config::DataOptions& data) {
    return data.decode_threads > 0 ? data.decode_threads : own_cores();
  }
  // At least kRows rows per thread: starting a thread costs more than processing fewer rows.
  std::size_t threads_for(std::size_t rows) const {
    constexpr std::size_t kRows = 4;
    return std::min(threads_, ceil_div(rows, kRows));
  }
  std::int64_t row_size() const { return model_.image_channels * model_.image_size * model_.image_size; }
  at::Tensor empty_images(std::int64_t rows) const {
    return at::empty({rows, model_.image_channels, model_.image_size, model_.image_size}, at::kFloat);
  }
  float* row_of(const at::Tensor& images, std::size_t row) const {
    return images.data_ptr<float>() + static_cast<std::int64_t>(row) * row_size();
  }
  // With mixup, each row is mixed into the next one, so a row is also needed if the next row is.
  bool is_needed(const std::vector<bool>& needed, std::size_t row) const {
    return needed.empty() || needed[row] || (mixup_ > 0.0 && needed[(row + 1) % needed.size()]);
  }

  // Returns nullopt if the image cannot be read and data.skip_bad_rows is set; otherwise throws.
  std::optional<data::Image> read(std::int64_t example) const {
    try {
      return dataset_->image(example);
    } catch (const UserError& error) {
      if (!skip_bad_) {
        throw;
      }
      const std::lock_guard lock(mutex_);
      if (unreadable_.empty()) {
        log_warning("skipping an unreadable image (later ones are only counted): {}", error.what());
      }
      unreadable_.insert(example);
      return std::nullopt;
    }
  }
  std::pair<data::Image, std::int32_t> read_or_next(std::int64_t example) const {
    constexpr std::int64_t kMostInARow = 1000;
    for (std::int64_t i = 0; i < kMostInARow; ++i) {
      const std::int64_t place = (example + i) % size();
      if (auto image = read(place)) {
        return {std::move(*image), dataset_->label(place)};
      }
    }
    user_error("data.train: {} consecutive images cannot be read", kMostInARow);
  }

  std::shared_ptr<const data::ImageDataset> dataset_;
  config::ModelOptions model_;
  data::Augmentation changed_, plain_;
  double mixup_;
  bool skip_bad_;
  std::size_t threads_;
  mutable std::mutex mutex_;
  mutable std::set<std::int64_t> unreadable_;  // examples
};

std::shared_ptr<const ClassExamples> read(const std::vector<std::string>& files, const config::Config& config,
                                          std::string_view key) {
  if (files.empty()) {
    user_error("{}: names no files; images are read from folders of PNG and JPEG files, or idx and CIFAR files", key);
  }
  const config::ModelOptions& model = config.model;
  return std::make_shared<ImageExamples>(data::open_images(files, {.size = model.image_size,
                                                                   .channels = model.image_channels,
                                                                   .n_classes = model.n_classes,
                                                                   .classes = config.data.classes,
                                                                   .skip_bad = config.data.skip_bad_rows}),
                                         config);
}

// Decorator that yields the same batches and positions as `data`. A background thread prepares each batch while the
// previous step computes. If preparing a batch fails, the next() that would have returned it throws the error.
class Prefetched : public TrainingData {
 public:
  explicit Prefetched(std::unique_ptr<TrainingData> data) : data_(std::move(data)), position_(data_->position()) {
    set(data_->identity(), nullptr);
  }

  models::Batch next() override {
    if (!pending_.valid()) {
      prepare();
    }
    Prepared batch = pending_.get();
    position_ = batch.after;
    prepare();
    return std::move(batch.batch);
  }
  data::DataPosition position() const override { return position_; }
  void seek(data::DataPosition position) override {
    pending_ = {};  // waits for the batch in preparation
    data_->seek(position);
    position_ = position;
  }
  void need_only(const std::vector<bool>& rows) override {
    seek(position_);  // discards the batch in preparation
    data_->need_only(rows);
  }

 private:
  struct Prepared {
    models::Batch batch;
    data::DataPosition after;
  };

  void prepare() {
    pending_ = std::async(std::launch::async, [this] {
      Prepared prepared{.batch = data_->next(), .after = {}};
      prepared.after = data_->position();
      return prepared;
    });
  }

  std::unique_ptr<TrainingData> data_;
  data::DataPosition position_;
  std::future<Prepared> pending_;  // last member: its destructor waits for the thread
};

std::vector<FigureKind> figures_with_top_five() {
  std::vector<FigureKind> kinds = class_figures();
  kinds.push_back({.name = "accuracy_top5",
                   .metric = "validation_accuracy_top5",
                   .words = "top-5 accuracy",
                   .unit = "",
                   .better = Better::higher,
                   .shown = Shown::table,
                   .decimals = 4,
                   .range = 1.0,
                   .always = false});
  return kinds;
}

std::unique_ptr<EvaluationData> evaluate_images(const std::vector<std::string>& files, const config::Config& config) {
  return evaluate_on(read(files, config, "data.validation"), /*top_five=*/true);
}

}  // namespace

const Task& image_classification() {
  static const Task kTask(
      {.name = "image classification",
       .protocol = "accuracy is the fraction of the validation images whose likeliest class is the right one, top-5 "
                   "accuracy the fraction whose right class is among the five likeliest; loss is their mean "
                   "cross-entropy; validation images are not augmented",
       .figures = figures_with_top_five(),
       .figures_of = class_figures_of,
       .open = [](const config::Config& config, const fs::path& /*cache*/) -> TaskData {
         return {
             .tokenizer = nullptr,
             .training = std::make_unique<Prefetched>(train_on(read(config.data.train, config, "data.train"), config)),
             .validation = evaluate_images(config.data.validation, config)};
       },
       .open_evaluation =
           [](const EvaluationRequest& request) {
             const config::Config& config = request.config;
             return evaluate_images(request.files.empty() ? config.data.validation : request.files, config);
           }});
  return kTask;
}

}  // namespace headroom::tasks
