#include "language_modelling.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "data/synthetic/sequences.h"
#include "data/tokens/example_order.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/models/language_model.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks {
namespace {

constexpr std::int64_t kValidationRows = 512;
constexpr const char *kRight = "right_answers", *kChance = "chance_level";

// Access to the rows of a split.
class SyntheticRows {
 public:
  SyntheticRows(const config::Config& config, data::Split split)
      : config_(config), split_(split), text_(data::synthetic_text(config.data, split, config.model.context_length)) {
    const bool train = split == data::Split::train;
    const std::int64_t given = train ? config.data.generated_train : config.data.generated_validation;
    size_ = given > 0 ? given : train ? kEndless : kValidationRows;
  }

  const config::Config& config() const { return config_; }
  std::int64_t length() const { return config_.model.context_length; }
  std::int64_t size() const { return size_; }  // rows until they repeat
  data::SyntheticRow row(std::int64_t i) const { return data::synthetic_row(config_.data, split_, i, length(), text_); }

  // Returns rows on the CPU.
  models::Batch batch(std::span<const std::int64_t> rows) const {
    const std::int64_t count = std::ssize(rows);
    models::Batch batch;
    at::Tensor tokens = at::empty({count, length()}, at::kLong), targets = at::empty({count, length()}, at::kLong);
    for (std::int64_t i = 0; i < count; ++i) {
      const data::SyntheticRow one = row(rows[static_cast<std::size_t>(i)]);
      std::ranges::copy(one.tokens, tokens[i].data_ptr<std::int64_t>());
      std::ranges::copy(one.targets, targets[i].data_ptr<std::int64_t>());
      batch.targets.push_back(std::ranges::count_if(one.targets, [](auto t) { return t >= 0; }));
    }
    batch.tensors["tokens"] = tokens;
    batch.tensors["targets"] = targets;
    batch.tokens = count * length();
    batch.resets_memory = true;
    return batch;
  }

  std::string identity() const {
    Sha256 sum;
    sum.update(text_);
    const config::DataOptions& data = config_.data;
    return fmt::format("{} with {} items, gap {}, {} of {} tokens, seed {}{}{}", config::name_of(data.synthetic),
                       data::synthetic_items(data), data.synthetic_gap,
                       size_ == kEndless ? "rows" : fmt::format("{} rows", size_), length(), data.generator_seed,
                       split_ == data::Split::train ? "" : " (validation)",
                       text_.empty() ? "" : ", in text " + sum.hex().substr(0, 16));
  }

 private:
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

  config::Config config_;
  data::Split split_;
  std::string text_;  // the text in which the rows' items are hidden, if any
  std::int64_t size_;
};

// Tokens are spelled as the bytes of their ids. Returns the byte values for a tokenizer of n tokens; empty for all 256.
std::string first_bytes(std::int64_t n) {
  std::string values;
  for (std::int64_t id = 0; n < config::kByteValues && id < n; ++id) {
    values += static_cast<char>(id);
  }
  return values;
}

class SyntheticTraining : public TrainingData, private data::EpochStream {
 public:
  explicit SyntheticTraining(const config::Config& config)
      : EpochStream("data.synthetic"), rows_(config, data::Split::train) {
    set_per_epoch(kEndless);
    set(rows_.identity(), this);
  }

  models::Batch next() override {
    const std::int64_t count = rows_.config().train.batch_size, first = advance().step * count;
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < count; ++i) {
      rows.push_back((first + i) % rows_.size());
    }
    return rows_.batch(rows);
  }
  data::DataPosition position() const override { return EpochStream::position(); }
  void seek(data::DataPosition position) override { EpochStream::seek(position); }

 private:
  SyntheticRows rows_;
};

class ValidationText : public tokenizers::TextSource {
 public:
  explicit ValidationText(const config::Config& config) : rows_(config, data::Split::validation) {}

  bool next(std::string& block) override {
    block.clear();
    if (row_ < rows_.size()) {
      const auto tokens = rows_.row(row_++).tokens;
      block.assign(tokens.begin(), tokens.end());
    }
    return !block.empty();
  }
  void rewind() override { row_ = 0; }
  std::int64_t bytes_read() const override { return row_ * rows_.length(); }
  std::int64_t bytes_total() const override { return rows_.size() * rows_.length(); }
  std::string fingerprint() const override { return rows_.identity(); }

 private:
  SyntheticRows rows_;
  std::int64_t row_ = 0;
};

// Returns the sums row by row, so that they do not depend on the batch size.
PlacedSums sums_of(const models::LanguageModel& model, const SyntheticRows& from, std::span<const std::int64_t> rows,
                   const nn::Context& context) {
  const models::Batch batch = from.batch(rows).to(model.device());
  models::Memory memory;
  const models::TokenScores scores = model.score(batch.at("tokens"), batch.at("targets"), memory, context);
  PlacedSums parts = sums_of_parts(-scores.log_probability, {rows.begin(), rows.end()}, batch.targets);
  std::int64_t first = 0;
  for (auto& [row, sums] : parts) {
    const std::int64_t answers = sums.begin()->second.count;
    const at::Tensor right = scores.likeliest.narrow(0, first, answers).sum();
    sums[kRight] = {static_cast<double>(right.item<std::int64_t>()), answers};
    sums[kChance] = {data::chance_level(from.config().data) * static_cast<double>(answers), answers};
    first += answers;
  }
  return parts;
}

std::unique_ptr<EvaluationData> synthetic_evaluation(const config::Config& config) {
  const auto rows = std::make_shared<const SyntheticRows>(config, data::Split::validation);
  return evaluation_of({.unit = "row",
                        .size = rows->size(),
                        .cost = [rows](std::int64_t) { return rows->length(); },
                        .evaluate =
                            [rows](const models::Model& model, std::span<const std::int64_t> chosen, std::int64_t,
                                   const nn::Context& context) {
                              return sums_of(models::as_language_model(model, "synthetic"), *rows, chosen,
                                             split_invariant(context));
                            },
                        .identity = [rows] { return rows->identity(); }});
}

}  // namespace

std::unique_ptr<tokenizers::TextSource> synthetic_validation(const config::Config& config) {
  return std::make_unique<ValidationText>(config);
}

const Task& synthetic_sequences() {
  static const Task kTask(
      {.name = "synthetic sequences",
       .protocol =
           "accuracy is the fraction of the answers in the validation rows that are the model's likeliest token; "
           "the accuracy of a random choice is that among the answers in a row",
       .figures = {loss_kind("answer"),
                   loss_error_kind(),
                   accuracy_kind(Shown::headline, "accuracy of answers"),
                   {.name = "chance",
                    .metric = "chance_accuracy",
                    .words = "accuracy of a random choice",
                    .unit = "",
                    .better = Better::neither,
                    .shown = Shown::table,
                    .decimals = 4}},
       .figures_of =
           [](const Sums& sums) {
             Figures figures = {{"loss", mean(sums, kCrossEntropy)},
                                {"accuracy", mean(sums, kRight)},
                                {"chance", mean(sums, kChance)}};
             add_loss_error(sums, figures);
             return figures;
           },
       .open = [](const config::Config& config, const std::filesystem::path& /*cache*/) -> TaskData {
         const std::int64_t size = config.model.vocabulary_size;
         data::check_synthetic(config.data, config.model.context_length, size);
         return {.tokenizer = tokenizers::restore_tokenizer(config::TokenizerKind::bytes, first_bytes(size), "bytes"),
                 .training = std::make_unique<SyntheticTraining>(config),
                 .validation = synthetic_evaluation(config)};
       },
       .open_evaluation = [](const EvaluationRequest& request) { return synthetic_evaluation(request.config); }});
  return kTask;
}

}  // namespace headroom::tasks
