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

// A split, and the text that hides its rows' items, if any.
struct SplitText {
  SplitText(const config::Config& config, data::Split of)
      : split(of), text(data::synthetic_text(config.data, of, config.model.context_length)) {}
  data::Split split;
  std::string text;
};

// Rows of a split, on the CPU.
models::Batch rows_of(const config::Config& config, const SplitText& from, std::span<const std::int64_t> rows) {
  const std::int64_t length = config.model.context_length, count = std::ssize(rows);
  models::Batch batch;
  at::Tensor tokens = at::empty({count, length}, at::kLong), targets = at::empty({count, length}, at::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    const data::SyntheticRow row =
        data::synthetic_row(config.data, from.split, rows[static_cast<std::size_t>(i)], length, from.text);
    std::ranges::copy(row.tokens, tokens[i].data_ptr<std::int64_t>());
    std::ranges::copy(row.targets, targets[i].data_ptr<std::int64_t>());
    batch.targets.push_back(std::ranges::count_if(row.targets, [](auto t) { return t >= 0; }));
  }
  batch.tensors["tokens"] = tokens;
  batch.tensors["targets"] = targets;
  batch.tokens = count * length;
  batch.resets_memory = true;
  return batch;
}

// Tokens are spelled as the bytes of their ids. Returns the values of a bytes tokenizer of n tokens; empty for all 256.
std::string first_bytes(std::int64_t n) {
  std::string values;
  for (std::int64_t id = 0; n < config::kByteValues && id < n; ++id) {
    values += static_cast<char>(id);
  }
  return values;
}

std::string identity_of(const config::DataOptions& data, const SplitText& from, std::int64_t rows,
                        std::int64_t length) {
  Sha256 sum;
  sum.update(from.text);
  return fmt::format("{} with {} items, gap {}, {} of {} tokens, seed {}{}{}", config::name_of(data.synthetic),
                     data::synthetic_items(data), data.synthetic_gap,
                     rows == std::numeric_limits<std::int64_t>::max() ? "rows" : fmt::format("{} rows", rows), length,
                     data.generator_seed, from.split == data::Split::train ? "" : " (validation)",
                     from.text.empty() ? "" : ", in text " + sum.hex().substr(0, 16));
}

class SyntheticTraining : public TrainingData, private data::EpochStream {
 public:
  explicit SyntheticTraining(const config::Config& config)
      : EpochStream("data.synthetic"),
        config_(config),
        size_(config.data.generated_train == 0 ? std::numeric_limits<std::int64_t>::max()
                                               : config.data.generated_train),
        from_(config, data::Split::train),
        identity_(identity_of(config.data, from_, size_, config.model.context_length)) {
    set_per_epoch(kEndless);
  }
  models::Batch next() override {
    const std::int64_t count = config_.train.batch_size, first = advance().step * count;
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < count; ++i) {
      rows.push_back((first + i) % size_);
    }
    return rows_of(config_, from_, rows);
  }
  data::DataPosition position() const override { return EpochStream::position(); }
  void seek(data::DataPosition position) override { EpochStream::seek(position); }
  const std::string& identity() const override { return identity_; }

 private:
  config::Config config_;
  std::int64_t size_;  // rows before they repeat
  SplitText from_;
  std::string identity_;
};

std::int64_t validation_rows(const config::DataOptions& data) {
  return data.generated_validation == 0 ? kValidationRows : data.generated_validation;
}

class ValidationText : public tokenizers::TextSource {
 public:
  explicit ValidationText(const config::Config& config)
      : config_(config), rows_(validation_rows(config.data)), from_(config, data::Split::validation) {}

  bool next(std::string& block) override {
    block.clear();
    if (row_ < rows_) {
      const auto tokens =
          data::synthetic_row(config_.data, from_.split, row_++, config_.model.context_length, from_.text).tokens;
      block.assign(tokens.begin(), tokens.end());
    }
    return !block.empty();
  }
  void rewind() override { row_ = 0; }
  std::int64_t bytes_read() const override { return row_ * config_.model.context_length; }
  std::int64_t bytes_total() const override { return rows_ * config_.model.context_length; }
  std::string fingerprint() const override {
    return identity_of(config_.data, from_, rows_, config_.model.context_length);
  }

 private:
  config::Config config_;
  std::int64_t rows_, row_ = 0;
  SplitText from_;
};

class SyntheticEvaluation : public EvaluationData {
 public:
  explicit SyntheticEvaluation(const config::Config& config)
      : config_(config), rows_(validation_rows(config.data)), from_(config, data::Split::validation) {}

  Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const override {
    const models::LanguageModel& reader = models::as_language_model(model, "synthetic");
    const std::vector<std::int64_t> chosen = rows_within(options.most_tokens);
    return run_evaluation(options,
                          {.unit = "row",
                           .units = std::ssize(chosen),
                           .evaluate_parts = [&](std::int64_t begin, std::int64_t end, const nn::Context& context) {
                             return sums_of(reader, units_of(chosen, begin, end), split_invariant(context));
                           }});
  }
  double rows(const config::Config& /*config*/, std::int64_t most_tokens) const override {
    return static_cast<double>(rows_within(most_tokens).size());
  }
  std::string identity() const override {
    return identity_of(config_.data, from_, rows_, config_.model.context_length);
  }

 private:
  // Returns the rows that are read, with at most this many tokens in total.
  std::vector<std::int64_t> rows_within(std::int64_t most_tokens) const {
    return data::spread_units(rows_, most_tokens, [&](std::int64_t) { return config_.model.context_length; });
  }

  // Returns the sums of each row, so that they do not depend on the batch size.
  PlacedSums sums_of(const models::LanguageModel& model, std::span<const std::int64_t> rows,
                     const nn::Context& context) const {
    const models::Batch batch = rows_of(config_, from_, rows).to(model.parameters().all().front().tensor.device());
    models::Memory memory;
    const models::TokenScores scores = model.score(batch.at("tokens"), batch.at("targets"), memory, context);
    PlacedSums parts = sums_of_parts(-scores.log_probability, {rows.begin(), rows.end()}, batch.targets);
    std::int64_t first = 0;
    for (auto& [row, sums] : parts) {
      const std::int64_t answers = sums.begin()->second.count;
      const at::Tensor right = scores.likeliest.narrow(0, first, answers).sum();
      sums[kRight] = {static_cast<double>(right.item<std::int64_t>()), answers};
      sums[kChance] = {data::chance_level(config_.data) * static_cast<double>(answers), answers};
      first += answers;
    }
    return parts;
  }

  config::Config config_;
  std::int64_t rows_;
  SplitText from_;
};

class SyntheticSequences : public Task {
 public:
  std::string_view name() const override { return "synthetic sequences"; }
  const std::vector<FigureKind>& figures() const override {
    static const std::vector<FigureKind> kFigures = {loss_kind("answer"),
                                                     loss_error_kind(),
                                                     accuracy_kind(Shown::headline, "accuracy of answers"),
                                                     {.name = "chance",
                                                      .metric = "chance_accuracy",
                                                      .words = "accuracy of a random choice",
                                                      .unit = "",
                                                      .better = Better::neither,
                                                      .shown = Shown::table,
                                                      .decimals = 4}};
    return kFigures;
  }
  std::string_view protocol() const override {
    return "accuracy is the fraction of the answers in the validation rows that are the model's likeliest token; the "
           "accuracy of a random choice is that among the answers in a row";
  }
  Figures figures_of(const Sums& sums) const override {
    Figures figures = {
        {"loss", mean(sums, kCrossEntropy)}, {"accuracy", mean(sums, kRight)}, {"chance", mean(sums, kChance)}};
    add_loss_error(sums, figures);
    return figures;
  }

  TaskData open(const config::Config& config, const std::filesystem::path& /*cache*/) const override {
    data::check_synthetic(config.data, config.model.context_length, config.model.vocabulary_size);
    TaskData opened;
    opened.tokenizer =
        tokenizers::restore_tokenizer(config::TokenizerKind::bytes, first_bytes(config.model.vocabulary_size), "bytes");
    opened.training = std::make_unique<SyntheticTraining>(config);
    opened.validation = std::make_unique<SyntheticEvaluation>(config);
    return opened;
  }
  std::unique_ptr<EvaluationData> open_evaluation(const EvaluationRequest& request) const override {
    return std::make_unique<SyntheticEvaluation>(request.config);
  }
};

}  // namespace

std::unique_ptr<tokenizers::TextSource> synthetic_validation(const config::Config& config) {
  return std::make_unique<ValidationText>(config);
}

const Task& synthetic_sequences() {
  static const SyntheticSequences kTask;
  return kTask;
}

}  // namespace headroom::tasks
