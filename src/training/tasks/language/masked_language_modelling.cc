#include "masked_language_modelling.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "data/tokens/example_order.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "language_modelling.h"
#include "text_data.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks {
namespace {

constexpr double kMasked = 0.8, kReplaced = 0.1;  // of the hidden tokens

double uniform(std::uint64_t seed) {
  return Random(seed).uniform();
}

// Packs sentences into rows.
class Packer {
 public:
  explicit Packer(std::int64_t longest) : longest_(longest) {}

  void add_sentence(std::int64_t length) {
    if (now_.length + length > longest_) {
      close();
    }
    for (; length > longest_; length -= longest_) {
      now_.length = longest_;
      close();
    }
    now_.length += length;
  }
  std::vector<RowSpan> finish() {
    close();
    return std::move(spans_);
  }

 private:
  void close() {
    if (now_.length > 0) {
      spans_.push_back(now_);
      now_ = {.begin = now_.begin + now_.length, .length = 0};
    }
  }
  std::int64_t longest_;
  RowSpan now_;
  std::vector<RowSpan> spans_;
};

// Returns the `count` positions in [0, length) with the smallest hashes.
std::vector<std::int64_t> chosen_places(std::int64_t length, std::int64_t count, std::uint64_t row_seed) {
  const std::uint64_t seed = mix(row_seed, "place");
  std::vector<std::pair<std::uint64_t, std::int64_t>> order;
  for (std::int64_t place = 0; place < length; ++place) {
    order.emplace_back(mix(seed, static_cast<std::uint64_t>(place)), place);
  }
  std::nth_element(order.begin(), order.begin() + (count - 1), order.end());
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i) {
    places.push_back(order[static_cast<std::size_t>(i)].second);
  }
  return places;
}

// Validation hides the same tokens for every train.seed.
constexpr std::uint64_t kValidationSeed = mix(0, "masked validation");

// The rows of a text, and batches of them.
class MaskedText {
 public:
  MaskedText(std::shared_ptr<const data::TokenFile> file, const tokenizers::Tokenizer& tokenizer,
             std::int64_t context_length)
      : file_(std::move(file)), ids_(file_->vocabulary_size() + config::n_special_tokens(kKind)) {
    constexpr std::int64_t kMarkers = 2;
    if (context_length <= kMarkers) {
      user_error("model.context_length: must be above {}, because a row starts and ends with <separator>, got {}",
                 kMarkers, context_length);
    }
    spans_ = pack_sentences(*file_, line_ends(tokenizer), context_length - kMarkers);
  }

  const data::TokenFile& file() const { return *file_; }
  std::int64_t rows() const { return std::ssize(spans_); }
  std::int64_t hidden(std::int64_t row, std::uint64_t seed) const {
    return hidden_count(spans_[static_cast<std::size_t>(row)].length, row_seed(row, seed));
  }

  // Returns "tokens" and "hidden", [rows, longest row], and "valid" if lengths differ.
  models::Batch batch(std::span<const std::int64_t> rows, std::uint64_t seed) const {
    std::vector<MaskedRow> masked;
    std::size_t longest = 0;
    for (const std::int64_t row : rows) {
      const RowSpan& span = spans_[static_cast<std::size_t>(row)];
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(span.length));
      file_->copy(span.begin, span.length, tokens.data());
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
      std::ranges::copy(row.tokens, tokens.data_ptr<std::int64_t>() + i * longest);
      std::ranges::copy(row.hidden, hidden.data_ptr<std::int64_t>() + i * longest);
      std::fill_n(valid.data_ptr<bool>() + i * longest, row.tokens.size(), true);
      batch.targets.push_back(std::ranges::count_if(row.hidden, [](auto id) { return id >= 0; }));
      batch.tokens += std::ssize(row.tokens);
    }
    batch.tensors["tokens"] = tokens;
    batch.tensors["hidden"] = hidden;
    if (batch.tokens < n * longest) {
      batch.tensors["valid"] = valid;
    }
    batch.resets_memory = true;
    return batch;
  }

  std::shared_ptr<const data::TokenFile> file_;
  MaskingTokens ids_;
  std::vector<RowSpan> spans_;
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
      user_error("{}: has only {} rows of model.context_length tokens, but train.batch_size is {}", text_.file().name(),
                 text_.rows(), batch_size_);
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
      user_error("{}: has {} batches per epoch, so there is no epoch {}, step {}", text_.file().name(), per_epoch_,
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
    const std::vector<std::int64_t> chosen = rows_to_read(options.most_tokens);
    models::Memory memory;
    const auto measure = [&](std::int64_t begin, std::int64_t end, const nn::Context& context) {
      const models::Batch batch = text_.batch(units_of(chosen, begin, end), kValidationSeed);
      return cross_entropy(model, batch, batch.n_targets(), memory, context);
    };
    return run_evaluation(options, {.unit = "row", .units = std::ssize(chosen), .evaluate = measure});
  }
  double rows(const config::Config& /*config*/, std::int64_t most_tokens) const override {
    return static_cast<double>(rows_to_read(most_tokens).size());
  }
  std::string identity() const override { return content_identity(text_.file()); }

 private:
  // Returns the rows that are read, with at most `most_tokens` hidden tokens in total.
  std::vector<std::int64_t> rows_to_read(std::int64_t most_tokens) const {
    return data::spread_units(text_.rows(), most_tokens,
                              [&](std::int64_t row) { return text_.hidden(row, kValidationSeed); });
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
    return "perplexity is exp(cross-entropy per hidden token); 15% of the validation tokens are hidden, the same for "
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

std::vector<bool> line_ends(const tokenizers::Tokenizer& tokenizer) {
  std::vector<bool> ends(static_cast<std::size_t>(tokenizer.vocabulary_size()), false);
  if (const std::int32_t line_end = tokenizer.line_end_id(); line_end >= 0) {
    ends[static_cast<std::size_t>(line_end)] = true;
  }
  if (tokenizer.kind() == config::TokenizerKind::bpe) {
    for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
      ends[static_cast<std::size_t>(id)] = tokenizer.decode(std::span(&id, 1)).ends_with('\n');
    }
  }
  return std::find(ends.begin(), ends.end(), true) == ends.end() ? std::vector<bool>() : ends;
}

std::vector<RowSpan> pack_sentences(const data::TokenFile& file, const std::vector<bool>& ends, std::int64_t longest) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 16;
  Packer packer(longest);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kAtOnce, file.size())));
  std::int64_t length = 0;  // tokens in the current sentence
  for (std::int64_t begin = 0; begin < file.size(); begin += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, file.size() - begin);
    file.copy(begin, count, ids.data());
    for (std::int64_t i = 0; i < count; ++i) {
      ++length;
      const auto id = static_cast<std::size_t>(ids[static_cast<std::size_t>(i)]);
      if (ends.empty() ? length == longest : ends.at(id)) {
        packer.add_sentence(length);
        length = 0;
      }
    }
  }
  if (length > 0) {
    packer.add_sentence(length);
  }
  return packer.finish();
}

std::int64_t hidden_count(std::int64_t length, std::uint64_t row_seed) {
  const double expected = static_cast<double>(config::kMaskedPercent * length) / 100.0;
  const double wanted = std::floor(expected + uniform(mix(row_seed, "count")));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1, length);
}

MaskedRow mask_row(const std::vector<std::int32_t>& tokens, const MaskingTokens& ids, std::uint64_t row_seed) {
  MaskedRow row;
  row.tokens.push_back(ids.separator);
  row.tokens.insert(row.tokens.end(), tokens.begin(), tokens.end());
  row.tokens.push_back(ids.separator);
  row.hidden.assign(row.tokens.size(), -1);
  const auto length = static_cast<std::int64_t>(tokens.size());
  const std::uint64_t kind_seed = mix(row_seed, "kind"), word_seed = mix(row_seed, "word");
  for (const std::int64_t place : chosen_places(length, hidden_count(length, row_seed), row_seed)) {
    std::int64_t& token = row.tokens[static_cast<std::size_t>(place + 1)];
    row.hidden[static_cast<std::size_t>(place + 1)] = token;
    const double kind = uniform(mix(kind_seed, static_cast<std::uint64_t>(place)));
    if (kind < kMasked) {
      token = ids.mask;
    } else if (kind < kMasked + kReplaced) {
      Random draw(mix(word_seed, static_cast<std::uint64_t>(place)));
      token = static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(ids.words)));
    }
  }
  return row;
}

}  // namespace headroom::tasks
