#include "language_modelling.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"
#include "text_data.h"

namespace headroom::tasks {
namespace {

using TokenFiles = std::vector<std::shared_ptr<const data::TokenFile>>;

// Returns the identity of the corpus, or the identities and weights of all corpora in a mixture.
std::string identity_of(const TokenFiles& files, const std::vector<double>& weights) {
  std::string all = weights.empty() ? data_identity(*files.front()) : "";
  for (std::size_t i = 0; i < weights.size(); ++i) {
    all += fmt::format("{}{} of {}", all.empty() ? "" : "; ", weights[i], data_identity(*files[i]));
  }
  return all;
}

std::unique_ptr<data::TokenBatches> batches_of(TokenFiles files, const config::Config& config) {
  const data::BatchShape shape = {.batch = config.train.batch_size, .length = config.model.context_length};
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  if (config.data.order == config::Order::shuffled && config.data.batching == config::Batching::streams) {
    for (std::shared_ptr<const data::TokenFile>& file : files) {
      file = std::make_shared<const data::TokenFile>(file->shuffled(seed));
    }
  }
  const std::vector<double>& weights = config.data.mixture;
  if (weights.empty()) {
    return data::make_batches(files.front(), shape, config.data.batching, seed);
  }
  auto batches = data::mix_batches({.files = files, .weights = weights}, shape, config.data.batching, seed);
  if (config.data.batching == config::Batching::streams) {
    log_info("data.mixture: rows of each corpus in a batch of {}: {}", shape.batch,
             fmt::join(data::shares_of(weights, shape.batch), ", "));
  }
  return batches;
}

class TextTraining : public TrainingData {
 public:
  TextTraining(const TokenFiles& files, const config::Config& config)
      : identity_(identity_of(files, config.data.mixture)),
        batches_(batches_of(files, config)),
        repeats_(config.data.batching == config::Batching::streams) {}

  models::Batch next() override { return to_batch(batches_->next()); }
  data::DataPosition position() const override { return batches_->position(); }
  void seek(data::DataPosition position) override { batches_->seek(position); }
  const std::string& identity() const override { return identity_; }
  std::int64_t distinct_batches() const override {
    return repeats_ ? batches_->per_epoch() : TrainingData::distinct_batches();
  }

 private:
  std::string identity_;
  std::unique_ptr<data::TokenBatches> batches_;
  bool repeats_;
};

class TextEvaluation : public EvaluationData {
 public:
  TextEvaluation(std::shared_ptr<const data::TokenFile> tokens, std::shared_ptr<const tokenizers::Tokenizer> tokenizer)
      : tokens_(std::move(tokens)), tokenizer_(std::move(tokenizer)) {}

  Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const override {
    return evaluate_text(model, tokens_, options);
  }
  double rows(const config::Config& config, std::int64_t most_tokens) const override {
    return evaluation_rows(tokens_, config.model, most_tokens);
  }
  std::string identity() const override { return content_identity(*tokens_); }
  std::string sample_prompt() const override {
    constexpr std::int64_t kTokens = 32;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kTokens, tokens_->size())));
    tokens_->copy(0, std::ssize(ids), ids.data());
    const std::string text = tokenizer_->decode(ids);
    return repair_utf8(std::string_view(text).substr(0, text.size() - unfinished_bytes(text)));
  }

 private:
  std::shared_ptr<const data::TokenFile> tokens_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
};

class LanguageModelling : public Task {
 public:
  std::string_view name() const override { return "language modelling"; }

  const std::vector<FigureKind>& figures() const override {
    static const std::vector<FigureKind> kFigures = {loss_kind("token"),
                                                     loss_error_kind(),
                                                     perplexity_kind(Shown::headline),
                                                     {.name = "bits_per_byte",
                                                      .metric = "bits_per_byte",
                                                      .words = "bits per byte",
                                                      .unit = "bits",
                                                      .shown = Shown::table,
                                                      .decimals = 4},
                                                     // Present only if the tokenizer could not represent all of the
                                                     // text.
                                                     {.name = "unknown_share",
                                                      .metric = "unknown_share",
                                                      .words = "share of unknown tokens",
                                                      .unit = "",
                                                      .better = Better::neither,
                                                      .decimals = 4,
                                                      .always = false}};
    return kFigures;
  }

  std::string_view protocol() const override {
    return "perplexity is exp(cross-entropy per token) over the whole validation data, read as contiguous text; bits "
           "per byte are over the bytes to which the tokens decode, and bytes of unknown words cost 8 bits each";
  }

  Figures figures_of(const Sums& sums) const override { return text_figures(sums); }

  TaskData open(const config::Config& config, const std::filesystem::path& cache) const override {
    TextData text = open_text_data(config, cache);
    TaskData data;
    data.tokenizer = text.tokenizer;
    data.training = std::make_unique<TextTraining>(text.train, config);
    data.validation = std::make_unique<TextEvaluation>(text.validation, text.tokenizer);
    return data;
  }

  std::unique_ptr<EvaluationData> open_evaluation(const EvaluationRequest& request) const override {
    return std::make_unique<TextEvaluation>(open_evaluation_text(request), request.tokenizer);
  }
};

}  // namespace

const Task& language_modelling() {
  static const LanguageModelling kTask;
  return kTask;
}

}  // namespace headroom::tasks
