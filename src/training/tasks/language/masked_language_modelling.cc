#include "masked_language_modelling.h"

#include <algorithm>
#include <numeric>

#include "data/tokens/shuffle.h"
#include "foundation/core/random.h"
#include "headroom/config/model_options.h"
#include "headroom/core/error.h"
#include "language_modelling.h"
#include "text_data.h"
#include "training/tasks/add_up.h"

namespace headroom::tasks {
namespace {

// Validation hides the same tokens whatever a run's seed is.
constexpr std::uint64_t kValidationSeed = mix(0, "masked validation");

// A text as rows, and batches of any of them.
class MaskedText {
 public:
  MaskedText(std::shared_ptr<const data::TokenFile> file, const tokenizers::Tokenizer& tokenizer,
             std::int64_t context_length)
      : file_(std::move(file)), ids_(file_->vocabulary_size() + config::n_special_tokens(kKind)) {
    constexpr std::int64_t kMarkers = 2;
    if (context_length <= kMarkers) {
      user_error("model.context_length: must be above {}, as a row begins and ends with <separator>, got {}", kMarkers,
                 context_length);
    }
    stretches_ = pack_sentences(*file_, line_ends(tokenizer), context_length - kMarkers);
  }

  const data::TokenFile& file() const { return *file_; }
  std::int64_t rows() const { return std::ssize(stretches_); }
  std::int64_t hidden(std::int64_t row, std::uint64_t seed) const {
    return hidden_count(stretches_[static_cast<std::size_t>(row)].length, row_seed(row, seed));
  }

  // "tokens" and "hidden" [rows, longest of them]; "valid" where they are of different lengths.
  models::Batch batch(const std::vector<std::int64_t>& rows, std::uint64_t seed) const {
    std::vector<MaskedRow> masked;
    std::size_t longest = 0;
    for (const std::int64_t row : rows) {
      const Stretch& stretch = stretches_[static_cast<std::size_t>(row)];
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(stretch.length));
      file_->copy(stretch.begin, stretch.length, tokens.data());
      masked.push_back(mask_row(tokens, ids_, row_seed(row, seed)));
      longest = std::max(longest, masked.back().tokens.size());
    }
    return stack(masked, static_cast<std::int64_t>(longest));
  }

 private:
  static constexpr config::ModelKind kKind = config::ModelKind::masked_language_model;

  static std::uint64_t row_seed(std::int64_t row, std::uint64_t seed) {
    return mix(seed, static_cast<std::uint64_t>(row));
  }

  models::Batch stack(const std::vector<MaskedRow>& rows, std::int64_t longest) const {
    const auto n = static_cast<std::int64_t>(rows.size());
    const at::Tensor tokens = at::full({n, longest}, ids_.separator, at::kLong);
    const at::Tensor hidden = at::full({n, longest}, -1, at::kLong), valid = at::zeros({n, longest}, at::kBool);
    models::Batch batch;
    for (std::int64_t i = 0; i < n; ++i) {
      const MaskedRow& row = rows[static_cast<std::size_t>(i)];
      std::copy(row.tokens.begin(), row.tokens.end(), tokens.data_ptr<std::int64_t>() + i * longest);
      std::copy(row.hidden.begin(), row.hidden.end(), hidden.data_ptr<std::int64_t>() + i * longest);
      std::fill_n(valid.data_ptr<bool>() + i * longest, row.tokens.size(), true);
      batch.targets.push_back(std::count_if(row.hidden.begin(), row.hidden.end(), [](auto id) { return id >= 0; }));
      batch.tokens += std::ssize(row.tokens);
    }
    batch.tensors["tokens"] = tokens;
    batch.tensors["hidden"] = hidden;
    if (batch.tokens < n * longest) {
      batch.tensors["valid"] = valid;
    }
    batch.starts_afresh = true;
    return batch;
  }

  std::shared_ptr<const data::TokenFile> file_;
  MaskingTokens ids_;
  std::vector<Stretch> stretches_;
};

class MaskedTraining : public TrainingData {
 public:
  MaskedTraining(MaskedText text, const config::TrainOptions& options)
      : text_(std::move(text)),
        identity_(data_identity(text_.file())),
        batch_size_(options.batch_size),
        per_epoch_(text_.rows() / batch_size_),
        seed_(static_cast<std::uint64_t>(options.seed)) {
    if (per_epoch_ < 1) {
      user_error("{}: gives {} rows of model.context_length tokens, too few for train.batch_size {}",
                 text_.file().name(), text_.rows(), batch_size_);
    }
  }

  models::Batch next() override {
    const std::uint64_t seed = mix(seed_, static_cast<std::uint64_t>(position_.epoch));
    const data::Shuffle order(static_cast<std::uint64_t>(text_.rows()), seed);
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < batch_size_; ++i) {
      const auto place = static_cast<std::uint64_t>(position_.step * batch_size_ + i);
      rows.push_back(static_cast<std::int64_t>(order(place)));
    }
    if (++position_.step == per_epoch_) {
      position_ = {.epoch = position_.epoch + 1, .step = 0};
    }
    return text_.batch(rows, mix(seed, "mask"));
  }
  data::DataPosition position() const override { return position_; }
  void seek(data::DataPosition position) override {
    if (position.epoch < 0 || position.step < 0 || position.step >= per_epoch_) {
      user_error("{}: has {} batches an epoch, so there is no epoch {}, step {}", text_.file().name(), per_epoch_,
                 position.epoch, position.step);
    }
    position_ = position;
  }
  const std::string& identity() const override { return identity_; }

 private:
  MaskedText text_;
  std::string identity_;
  std::int64_t batch_size_, per_epoch_;
  std::uint64_t seed_;
  data::DataPosition position_;
};

class MaskedEvaluation : public EvaluationData {
 public:
  explicit MaskedEvaluation(MaskedText text) : text_(std::move(text)) {}

  Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const override {
    const std::int64_t rows = rows_to_read(options.most_tokens),
                       at_once = std::max<std::int64_t>(options.batch_size, 1);
    models::Memory memory;
    std::int64_t done = 0;
    return add_up(options, {.unit = "row", .units = rows}, [&](const nn::Context& context) -> std::optional<Measured> {
      std::vector<std::int64_t> now(static_cast<std::size_t>(std::min(at_once, rows - done)));
      if (now.empty()) {
        return std::nullopt;
      }
      std::iota(now.begin(), now.end(), done);
      done += std::ssize(now);
      const auto measure = [&, now] {
        const models::Batch batch = text_.batch(now, kValidationSeed);
        return cross_entropy(model, batch, batch.n_targets(), memory, context);
      };
      return Measured{.sums = measure, .done = done};
    });
  }
  double rows(const config::Config& config) const override {
    return static_cast<double>(rows_to_read(config.train.evaluate_tokens));
  }
  std::string identity() const override { return content_identity(text_.file()); }

 private:
  // As many from the beginning as hide at most so many tokens, at least one; 0: all.
  std::int64_t rows_to_read(std::int64_t most_tokens) const {
    std::int64_t rows = 0, hidden = 0;
    while (rows < text_.rows() && most_tokens > 0) {
      hidden += text_.hidden(rows, kValidationSeed);
      if (rows > 0 && hidden > most_tokens) {
        return rows;
      }
      ++rows;
    }
    return text_.rows();
  }

  MaskedText text_;
};

class MaskedLanguageModelling : public Task {
 public:
  std::string_view name() const override { return "masked language modelling"; }

  const std::vector<FigureKind>& figures() const override {
    static const std::vector<FigureKind> kFigures = {loss_kind("hidden token"), loss_error_kind(),
                                                     perplexity_kind(Shown::headline, "perplexity of hidden tokens")};
    return kFigures;
  }

  std::string_view protocol() const override {
    return "perplexity is exp(cross-entropy a hidden token); 15% of the validation tokens are hidden, the same for "
           "every model";
  }

  Figures figures_of(const Sums& sums) const override { return loss_and_perplexity(sums); }

  TaskData open(const config::Config& config, const std::filesystem::path& cache) const override {
    const TextData text = open_text_data(config, cache);
    const auto rows_of = [&](const std::shared_ptr<const data::TokenFile>& file) {
      return MaskedText(file, *text.tokenizer, config.model.context_length);
    };
    TaskData data;
    data.tokenizer = text.tokenizer;
    data.training = std::make_unique<MaskedTraining>(rows_of(text.train.front()), config.train);
    data.validation = std::make_unique<MaskedEvaluation>(rows_of(text.validation));
    return data;
  }

  std::unique_ptr<EvaluationData> open_evaluation(const EvaluationRequest& request) const override {
    return std::make_unique<MaskedEvaluation>(
        MaskedText(open_evaluation_text(request), *request.tokenizer, request.config.model.context_length));
  }
};

}  // namespace

const Task& masked_language_modelling() {
  static const MaskedLanguageModelling kTask;
  return kTask;
}

}  // namespace headroom::tasks
