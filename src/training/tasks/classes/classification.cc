#include "classification.h"

#include <algorithm>

#include "data/synthetic/listops.h"
#include "foundation/core/random.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks {
namespace {

class ClassTraining : public TrainingData {
 public:
  ClassTraining(std::shared_ptr<const ClassExamples> examples, const std::string& identity,
                const config::Config& config)
      : examples_(std::move(examples)),
        smoothing_(config.train.label_smoothing),
        seed_(mix(static_cast<std::uint64_t>(config.train.seed), "examples")),
        order_({.examples = examples_->size(),
                .batch = config.train.batch_size,
                .seed = seed_,
                .length = [set = examples_.get()](std::int64_t i) { return set->length(i); }},
               identity) {
    set(identity, &order_);
  }

  models::Batch next() override {
    const data::DataPosition place = order_.position();
    const std::uint64_t seed =
        mix(mix(seed_, static_cast<std::uint64_t>(place.epoch)), static_cast<std::uint64_t>(place.step));
    const std::vector<std::int64_t> examples = order_.next();
    models::Batch batch = examples_->training_batch({.examples = examples, .seed = seed, .needed = needed_});
    batch.label_smoothing = smoothing_;
    return batch;
  }
  void need_only(const std::vector<bool>& rows) override { needed_ = rows; }

 private:
  std::shared_ptr<const ClassExamples> examples_;
  std::vector<bool> needed_;
  double smoothing_;
  std::uint64_t seed_;
  data::ExampleOrder order_;
};

constexpr const char* kRightClasses = "right";
constexpr const char* kRightInFive = "right_in_five";
constexpr std::int64_t kFive = 5;

Sums score(const models::ClassModel& model, const models::Batch& batch, const nn::Context& context, bool top_five) {
  if (batch.rows() == 0) {
    return {};
  }
  const at::Tensor logits = model.class_logits(batch, context);
  const at::Tensor wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const at::Tensor& label = batch.at("label");
  Sums sums = sums_of_losses(at::cross_entropy_loss(wide, label, {}, at::Reduction::None));
  const auto right = static_cast<double>(wide.argmax(1).eq(label).sum().item<std::int64_t>());
  sums[kRightClasses] = {.sum = right, .count = batch.rows()};
  if (top_five && wide.size(1) > kFive) {
    const at::Tensor likeliest = std::get<1>(wide.topk(kFive, 1));
    const auto among = static_cast<double>(likeliest.eq(label.unsqueeze(1)).sum().item<std::int64_t>());
    sums[kRightInFive] = {.sum = among, .count = batch.rows()};
  }
  return sums;
}

}  // namespace

std::vector<FigureKind> class_figures(Shown shown) {
  FigureKind loss = loss_kind("example");
  loss.shown = shown;
  return {loss, loss_error_kind(), accuracy_kind(shown == Shown::headline ? Shown::table : Shown::headline)};
}

Figures class_figures_of(const Sums& sums) {
  Figures figures = {{"loss", mean(sums, kCrossEntropy)}, {"accuracy", mean(sums, kRightClasses)}};
  if (const Sum among = sum_of(sums, kRightInFive); among.count > 0) {
    figures["accuracy_top5"] = among.sum / static_cast<double>(among.count);
  }
  add_loss_error(sums, figures);
  return figures;
}

std::unique_ptr<TrainingData> train_on(std::shared_ptr<const ClassExamples> examples, const config::Config& config) {
  const std::string identity = examples->identity();
  return std::make_unique<ClassTraining>(std::move(examples), identity, config);
}

std::unique_ptr<EvaluationData> evaluate_on(std::shared_ptr<const ClassExamples> examples, bool top_five) {
  return evaluation_of(
      {.unit = "example",
       .size = examples->size(),
       .cost = [](std::int64_t) { return 1; },
       .evaluate = [examples, top_five](const models::Model& model, std::span<const std::int64_t> chosen,
                                        std::int64_t begin, const nn::Context& context) -> PlacedSums {
         const models::Batch batch = examples->batch(chosen).to(model.device());
         return {{begin, score(dynamic_cast<const models::ClassModel&>(model), batch, context, top_five)}};
       },
       .identity = [examples] { return examples->identity(); },
       .length = [examples](std::int64_t i) { return examples->length(i); },
       .shows_loss = false});
}

models::Batch labelled_batch(const std::vector<std::int32_t>& labels, std::span<const std::int64_t> examples,
                             std::int64_t tokens) {
  const std::int64_t rows = std::ssize(examples);
  const at::Tensor label = at::empty({rows}, at::kLong);
  std::ranges::transform(examples, label.data_ptr<std::int64_t>(),
                         [&](std::int64_t i) { return labels[static_cast<std::size_t>(i)]; });
  models::Batch batch;
  batch.tensors["label"] = label;
  batch.targets.assign(examples.size(), 1);
  batch.tokens = rows * tokens;
  batch.resets_memory = true;
  return batch;
}

namespace {

namespace fs = std::filesystem;

class SequenceExamples : public ClassExamples {
 public:
  SequenceExamples(data::LabelledSequences set, std::string kind) : set_(std::move(set)), kind_(std::move(kind)) {}

  std::int64_t size() const override { return set_.size(); }
  std::string identity() const override { return fmt::format("{}, {}", kind_, set_.identity()); }
  std::int64_t length(std::int64_t i) const override { return set_.length(i); }
  models::Batch batch(std::span<const std::int64_t> examples) const override {
    const at::Tensor tokens = padded(set_.first, examples);
    const bool paired = set_.second.size() > 0;
    const at::Tensor second = paired ? padded(set_.second, examples) : at::Tensor();
    models::Batch batch = labelled_batch(set_.labels, examples, tokens.size(1) + (paired ? second.size(1) : 0));
    batch.tensors["tokens"] = tokens;
    if (paired) {
      batch.tensors["second"] = second;
    }
    return batch;
  }

 private:
  static at::Tensor padded(const data::Sequences& sequences, std::span<const std::int64_t> examples) {
    const std::int64_t longest = max_over(
        examples, [&](std::int64_t i) { return sequences.length(i); }, std::int64_t{1});
    const at::Tensor tokens = at::zeros({std::ssize(examples), longest}, at::kLong);
    std::int64_t* row = tokens.data_ptr<std::int64_t>();
    for (const std::int64_t i : examples) {
      const auto sequence = sequences.at(i);
      std::ranges::copy(sequence, row);
      row += longest;
    }
    return tokens;
  }

  data::LabelledSequences set_;
  std::string kind_;
};

// Throws UserError unless the model fits the data.
void check_model(const config::Config& config) {
  const config::ModelOptions& model = config.model;
  const bool listops = is_listops(config.data);
  const std::int64_t symbols = listops ? data::listops::kVocabulary : config::kByteValues;
  if (model.vocabulary_size < symbols) {
    user_error("model.vocabulary_size: must be at least {}, the {}, got {}", symbols,
               listops ? "symbols of ListOps" : "values of a byte", model.vocabulary_size);
  }
  if (model.padding_token != 0) {
    user_error("model.padding_token: must be 0, the only value that is unused in this data, got {}",
               model.padding_token);
  }
  if (listops && (model.paired || model.n_classes < data::listops::kClasses)) {
    user_error(
        "data.generator: ListOps has single sequences and {} classes, but model.paired = {} and model.n_classes = {}",
        data::listops::kClasses, model.paired, model.n_classes);
  }
  constexpr std::int64_t kLongest[] = {50, 2000};
  const std::int64_t longest = kLongest[config.data.generator == config::Generator::listops_long ? 1 : 0];
  if (listops && config.data.train.empty() && model.context_length < longest) {
    user_error("model.context_length: must be at least {}, the longest expression that data.generator makes, got {}",
               longest, model.context_length);
  }
}

std::shared_ptr<const ClassExamples> examples_of(data::LabelledSequences set, const config::Config& config) {
  return std::make_shared<SequenceExamples>(std::move(set), is_listops(config.data) ? "ListOps" : "bytes");
}

data::LabelledSequences read(const std::vector<std::string>& files, const config::Config& config) {
  const config::ModelOptions& model = config.model;
  if (is_listops(config.data)) {
    return data::listops::read(files,
                               {.most_symbols = model.context_length, .skip_bad_rows = config.data.skip_bad_rows});
  }
  return data::read_labelled_text(
      files, config.data, {.n_classes = model.n_classes, .most_bytes = model.context_length, .paired = model.paired});
}

// Returns the data options if they set a generator; otherwise throws UserError.
const config::DataOptions& generator_of(const config::Config& config) {
  if (!is_listops(config.data)) {
    user_error("data.train: names no files; a classifier needs labelled CSV or TSV files, or data.generator");
  }
  return config.data;
}

TaskData open_sequences(const config::Config& config, const fs::path& /*cache*/) {
  check_model(config);
  const config::DataOptions& data = config.data;
  if (data.train.empty() != data.validation.empty()) {
    user_error("{}: must name files, as {} does", data.train.empty() ? "data.train" : "data.validation",
               data.train.empty() ? "data.validation" : "data.train");
  }
  data::listops::Generated sets =
      data.train.empty()
          ? data::listops::generate(generator_of(config))
          : data::listops::Generated{.train = read(data.train, config), .validation = read(data.validation, config)};
  return {.tokenizer = nullptr,
          .training = train_on(examples_of(std::move(sets.train), config), config),
          .validation = evaluate_on(examples_of(std::move(sets.validation), config))};
}

Task::Parts sequence_task(Shown loss) {
  return {.name = "classification",
          .protocol =
              "accuracy is the fraction of the validation examples whose likeliest class is the right one; loss "
              "is their mean cross-entropy",
          .figures = class_figures(loss),
          .figures_of = class_figures_of,
          .open = open_sequences,
          .open_evaluation = [](const EvaluationRequest& request) {
            return evaluate_on(examples_of(evaluation_sequences(request), request.config));
          }};
}

// Tokenizer of ListOps symbols. decode() puts a space before each symbol.
class ListOpsSymbols : public tokenizers::Tokenizer {
 public:
  config::TokenizerKind kind() const override { return config::TokenizerKind::words; }
  std::int64_t vocabulary_size() const override { return data::listops::kVocabulary; }
  const std::string& serialised() const override { return name_; }
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    const std::vector<std::uint16_t> symbols = data::listops::parse(text);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= data::listops::kVocabulary) {
        user_error("ListOps: a token must be from 0 to {}, got {}", data::listops::kVocabulary - 1, id);
      }
      const auto symbol = static_cast<std::uint16_t>(id);
      text += symbol == data::listops::kPadding ? " <padding>" : " " + data::listops::to_text({&symbol, 1});
    }
    return text;
  }

 private:
  std::string name_ = "ListOps";
};

}  // namespace

bool is_listops(const config::DataOptions& data) {
  return data.generator == config::Generator::listops || data.generator == config::Generator::listops_long;
}

data::LabelledSequences evaluation_sequences(const EvaluationRequest& request) {
  const config::Config& config = request.config;
  check_model(config);
  const std::vector<std::string>& files = request.files.empty() ? config.data.validation : request.files;
  return files.empty() ? data::listops::generate(generator_of(config), false).validation : read(files, config);
}

std::shared_ptr<const tokenizers::Tokenizer> sequence_tokenizer(const config::Config& config) {
  if (is_listops(config.data)) {
    return std::make_shared<ListOpsSymbols>();
  }
  return tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "", "bytes");
}

const Task& sequence_classification() {
  static const Task kTask(sequence_task(Shown::files));
  return kTask;
}

// Models are compared by the loss, because accuracies over a few thousand expressions are often close or tied.
const Task& listops() {
  static const Task kTask(sequence_task(Shown::headline));
  return kTask;
}

}  // namespace headroom::tasks
