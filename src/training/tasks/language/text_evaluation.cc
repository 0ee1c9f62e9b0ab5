// Evaluates a language model on a text.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>

#include "data/text/token_cache.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/models/language_model.h"
#include "language_modelling.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks {
namespace {

constexpr const char *kTextBytes = "text_bytes", *kUnknownBytes = "unknown_bytes", *kUnknownTokens = "unknown_tokens";

at::Tensor to_tensor(const std::vector<std::int32_t>& ids, std::int64_t rows) {
  const at::Tensor tensor = at::empty({rows, static_cast<std::int64_t>(ids.size()) / rows}, at::kLong);
  std::ranges::copy(ids, tensor.data_ptr<std::int64_t>());
  return tensor;
}

models::Batch to_batch(const data::EvaluationBatch& batch) {
  models::Batch made;
  made.tensors["tokens"] = to_tensor(batch.inputs, batch.batch);
  made.tensors["targets"] = to_tensor(batch.targets, batch.batch);
  made.tokens = batch.batch * batch.length;
  return made;
}

// Returns counts of the text itself, independent of the model.
Sums text_sums(const data::TokenFile& tokens) {
  const auto over_tokens = [&](std::int64_t n) { return Sum{.sum = static_cast<double>(n), .count = tokens.size()}; };
  Sums sums = {{kTextBytes, over_tokens(tokens.decoded_bytes())}};
  if (const std::optional<tokenizers::Unknown>& unknown = tokens.unknown()) {
    sums[kUnknownBytes] = over_tokens(unknown->bytes);
    sums[kUnknownTokens] = over_tokens(unknown->tokens);
  }
  return sums;
}

// Sliding windows over the predictions: window w ends with prediction min(length + w stride, all).
class Windows {
 public:
  Windows(const data::TokenFile& tokens, std::int64_t context_length, std::int64_t stride)
      : tokens_(tokens), stride_(stride), all_(tokens.size() - 1), length_(std::min(context_length, all_)) {
    if (stride_ > context_length) {
      user_error("evaluate: --stride: must be at most model.context_length = {}, got {}", context_length, stride_);
    }
  }
  std::int64_t count() const { return all_ < 1 ? 0 : 1 + (all_ - length_ + stride_ - 1) / stride_; }

  // Returns "tokens" and "targets", [rows, length], of windows [first, first + rows). Ignored targets are -1.
  models::Batch batch(std::int64_t first, std::int64_t rows) const {
    const at::Tensor inputs = at::empty({rows, length_}, at::kLong), targets = at::full({rows, length_}, -1, at::kLong);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length_ + 1));
    models::Batch made;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t window = first + row, end = end_of(window);
      const std::int64_t counted = window == 0 ? length_ : end - end_of(window - 1);
      tokens_.copy(end - length_, length_ + 1, ids.data());
      std::copy_n(ids.begin(), length_, inputs.data_ptr<std::int64_t>() + row * length_);
      std::copy(ids.end() - counted, ids.end(), targets.data_ptr<std::int64_t>() + (row + 1) * length_ - counted);
      made.targets.push_back(counted);
    }
    made.tensors = {{"tokens", inputs}, {"targets", targets}};
    return made;
  }

 private:
  std::int64_t end_of(std::int64_t window) const { return std::min(length_ + window * stride_, all_); }

  const data::TokenFile& tokens_;
  std::int64_t stride_, all_, length_;
};

Evaluation evaluate_windows(const models::LanguageModel& model, const data::TokenFile& tokens,
                            const EvaluateOptions& options) {
  const config::ModelOptions& o = model.options();
  if (o.memory_length > 0) {
    user_error("evaluate: --stride: must be 0 with model.memory_length = {}, because memory carries the context",
               o.memory_length);
  }
  if (options.most_tokens > 0) {
    fail("evaluate: sliding windows cannot be limited to {} predictions", options.most_tokens);
  }
  const Windows windows(tokens, o.context_length, options.stride);
  models::Memory memory;
  const auto measure = [&](std::int64_t begin, std::int64_t end, const nn::Context& context) {
    const models::Batch batch = windows.batch(begin, end - begin).to(model.device());
    // score() computes logits only for targets that are not ignored.
    const at::Tensor losses =
        -model.score(batch.at("tokens"), batch.at("targets"), memory, split_invariant(context)).log_probability;
    std::vector<std::int64_t> places(batch.targets.size());
    std::iota(places.begin(), places.end(), begin);
    return sums_of_parts(losses, places, batch.targets);
  };
  return run_evaluation(options, {.unit = "window", .units = windows.count(), .evaluate = measure});
}

data::EvaluationShape shape_of(const config::ModelOptions& model, std::int64_t batch_size, std::int64_t most_tokens) {
  // A layer's memory depends on the layer below in the previous chunk, so the context reaches back n_layers chunks.
  return {.batch = std::max<std::int64_t>(batch_size, 1),
          .length = model.context_length,
          .warming = model.memory_length > 0 ? model.n_layers : 0,
          .most_predictions = most_tokens};
}

// Evaluates the text as parallel streams.
Evaluation evaluate_streams(const models::Model& model, std::shared_ptr<const data::TokenFile> tokens,
                            const EvaluateOptions& options) {
  const config::ModelOptions& o = model.options();
  data::EvaluationPass pass(std::move(tokens), shape_of(o, options.batch_size, options.most_tokens));
  models::Memory memory;
  data::EvaluationBatch batch;
  const auto read = [&](std::int64_t begin) {
    pass.next(batch);
    if (batch.resets_memory) {
      memory.reset();
    }
    memory = memory.narrow(0, batch.batch);
    return begin + 1;
  };
  const auto measure = [&](std::int64_t /*begin*/, std::int64_t /*end*/, const nn::Context& context) {
    return sums_of_parts(token_losses(model, to_batch(batch), memory, split_invariant(context)), batch.chunks,
                         batch.counted);
  };
  return run_evaluation(options, {.unit = "batch",
                                  .units = pass.batches(),
                                  .end_of = read,
                                  .evaluate = measure,
                                  .independent = o.memory_length == 0});
}

}  // namespace

models::Batch to_batch(const data::TokenBatch& batch) {
  models::Batch made;
  made.tensors["tokens"] = to_tensor(batch.tokens, batch.batch);
  made.targets.assign(static_cast<std::size_t>(batch.batch), batch.length);
  made.tokens = batch.batch * batch.length;
  made.resets_memory = batch.resets_memory;
  return made;
}

Evaluation evaluate_text(const models::Model& model, std::shared_ptr<const data::TokenFile> tokens,
                         const EvaluateOptions& options) {
  const config::ModelOptions& o = model.options();
  if (tokens->vocabulary_size() != o.vocabulary_size) {
    user_error("{}: has tokens of {} with {} ids, but the model's vocabulary_size is {}", tokens->name(),
               tokens->tokenizer_name(), tokens->vocabulary_size(), o.vocabulary_size);
  }
  Evaluation result = options.stride > 0
                          ? evaluate_windows(models::as_language_model(model, "evaluate --stride"), *tokens, options)
                          : evaluate_streams(model, tokens, options);
  if (result.predictions() == 0) {
    user_error("{}: holds {} tokens, too few to predict one", tokens->name(), tokens->size());
  }
  add(result.sums, text_sums(*tokens));
  return result;
}

double evaluation_rows(const std::shared_ptr<const data::TokenFile>& tokens, const config::ModelOptions& model,
                       std::int64_t most_tokens) {
  if (most_tokens > 0 && most_tokens < tokens->size() - 1) {
    return static_cast<double>(data::EvaluationPass(tokens, shape_of(model, 1, most_tokens)).chunks());
  }
  // Models with memory read about a quarter of the chunks twice.
  const double chunks = std::ceil(static_cast<double>(tokens->size()) / static_cast<double>(model.context_length));
  return model.memory_length > 0 ? 1.25 * chunks : chunks;
}

Figures text_figures(const Sums& sums) {
  Figures figures = loss_and_perplexity(sums);
  const Sum loss = sum_of(sums, kCrossEntropy), text = sum_of(sums, kTextBytes),
            unknown_bytes = sum_of(sums, kUnknownBytes), unknown_tokens = sum_of(sums, kUnknownTokens);
  if (text.count > 0 && unknown_bytes.count == text.count) {  // not recorded by older files
    const double evaluated = static_cast<double>(loss.count) / static_cast<double>(text.count);
    // Predicting "unknown" does not reveal the bytes, so each byte is charged as a uniform guess, log2(256) bits.
    constexpr double kBitsOfAByte = 8.0;
    const double unknown_bits = kBitsOfAByte * unknown_bytes.sum * evaluated;
    figures["bits_per_byte"] = (loss.sum / std::numbers::ln2 + unknown_bits) / (text.sum * evaluated);
    if (unknown_tokens.sum > 0.0) {
      figures["unknown_share"] = mean(sums, kUnknownTokens);
    }
  }
  return figures;
}

std::string content_identity(const data::TokenFile& tokens) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 20;
  Sha256 hash;
  std::vector<std::int32_t> ids;
  for (std::int64_t at = 0; at < tokens.size(); at += std::ssize(ids)) {
    ids.resize(static_cast<std::size_t>(std::min(kAtOnce, tokens.size() - at)));
    tokens.copy(at, std::ssize(ids), ids.data());
    hash.update(std::as_bytes(std::span(ids)));
  }
  return fmt::format("{} tokens, {}", tokens.size(), data::dataset_id(hash));
}

std::string data_identity(const data::TokenFile& tokens) {
  constexpr std::int64_t kSections = 64, kLength = 16384;
  const std::int64_t length = std::min(tokens.size(), kLength);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
  Sha256 hash;
  std::int64_t hashed = 0;  // in a short file, sections would overlap
  for (std::int64_t i = 0; i < kSections && hashed < tokens.size(); ++i) {
    const std::int64_t spread = (tokens.size() - length) / (kSections - 1) * i;
    const std::int64_t begin = tokens.size() <= kSections * kLength ? hashed : spread;
    const std::int64_t count = std::min(length, tokens.size() - begin);
    tokens.copy(begin, count, ids.data());
    hash.update(std::as_bytes(std::span(ids).first(static_cast<std::size_t>(count))));
    hashed += count;
  }
  return fmt::format("{}, {} tokens, {}", tokens.tokenizer_name(), tokens.size(), data::dataset_id(hash));
}

}  // namespace headroom::tasks
