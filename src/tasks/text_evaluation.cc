// How well a model predicts a text.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <numbers>
#include <optional>
#include <span>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"
#include "headroom/models/language_model.h"
#include "headroom/tasks/language_modelling.h"
#include "text_batch.h"

namespace headroom::tasks {
namespace {

at::Tensor to_tensor(const std::vector<std::int32_t>& ids, std::int64_t rows) {
  const at::Tensor tensor = at::empty({rows, static_cast<std::int64_t>(ids.size()) / rows}, at::kLong);
  std::copy(ids.begin(), ids.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

models::Batch to_batch(const data::EvaluationBatch& batch) {
  models::Batch made;
  made.tensors["tokens"] = to_tensor(batch.inputs, batch.batch);
  made.tensors["targets"] = to_tensor(batch.targets, batch.batch);
  made.tokens = batch.batch * batch.length;
  return made;
}

// `sum` of the cross-entropies of result.tokens predictions.
void set_figures(Evaluation& result, double sum, const data::TokenFile& tokens) {
  if (result.tokens == 0) {
    misuse("{}: holds {} tokens, too few to predict one", tokens.name(), tokens.size());
  }
  const auto predicted = static_cast<double>(result.tokens);
  const double share = predicted / static_cast<double>(tokens.size());
  const double bytes = static_cast<double>(tokens.text_bytes()) * share;
  result.figures = {{"loss", sum / predicted}};
  if (const std::optional<tokenizers::Unknown>& unknown = tokens.unknown()) {
    // A model that predicts "unknown" has not said which: as if each such byte were then guessed, at log2(256) bits.
    constexpr double kBitsOfAByte = 8.0;
    const double spelling = kBitsOfAByte * static_cast<double>(unknown->bytes) * share;
    result.figures["bits_per_byte"] = (sum / std::numbers::ln2 + spelling) / bytes;
    if (unknown->tokens > 0) {
      result.figures["unknown_share"] = static_cast<double>(unknown->tokens) / static_cast<double>(tokens.size());
    }
  }
  language_modelling().complete(result.figures);
}

// Windows that overlap: window w ends with prediction min(length + w stride, all).
class Windows {
 public:
  Windows(const data::TokenFile& tokens, std::int64_t context_length, const EvaluateOptions& options)
      : tokens_(tokens), stride_(options.stride), all_(tokens.size() - 1) {
    if (stride_ > context_length) {
      misuse("evaluate: --stride: must be at most model.context_length = {}, got {}", context_length, stride_);
    }
    all_ = options.most_tokens > 0 ? std::min(all_, options.most_tokens) : all_;
    length_ = std::min(context_length, all_);
  }
  std::int64_t count() const { return all_ < 1 ? 0 : 1 + (all_ - length_ + stride_ - 1) / stride_; }

  // "tokens" and "targets" [rows, length] of `rows` windows from `first` on; those that do not count are -1.
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
  std::int64_t stride_, all_, length_ = 0;
};

Evaluation evaluate_windows(const models::LanguageModel& model, const data::TokenFile& tokens,
                            const EvaluateOptions& options) {
  const config::ModelOptions& o = model.options();
  if (o.memory_length > 0) {
    misuse("evaluate: --stride: must be 0 with model.memory_length = {}: memory carries what came before",
           o.memory_length);
  }
  const Windows windows(tokens, o.context_length, options);
  const std::int64_t at_once = std::max<std::int64_t>(options.batch_size, 1);
  std::optional<Progress> progress;
  if (options.show_progress) {
    progress.emplace("evaluate", windows.count(), "window");
  }
  nn::Context context = options.context;
  context.training = false;
  models::Memory memory;
  double sum = 0.0;
  Evaluation result;
  for (std::int64_t done = 0; result.complete && done < windows.count();) {
    const models::Batch batch = windows.batch(done, std::min(at_once, windows.count() - done));
    const models::Batch there = batch.to(model.device());
    // The vocabulary's scores are needed for what counts only.
    sum -= model.score(there.at("tokens"), there.at("targets"), memory, context).log_probability.sum().item<double>();
    result.tokens += batch.n_targets();
    done += batch.rows();
    result.complete = !interrupted();
    if (progress) {
      progress->update(done, fmt::format("loss {:.4f}", sum / static_cast<double>(result.tokens)));
    }
  }
  set_figures(result, sum, tokens);
  return result;
}

}  // namespace

models::Batch to_batch(const data::Batch& batch) {
  models::Batch made;
  made.tensors["tokens"] = to_tensor(batch.tokens, batch.batch);
  made.targets.assign(static_cast<std::size_t>(batch.batch), batch.length);
  made.tokens = batch.batch * batch.length;
  made.starts_afresh = batch.starts_afresh;
  return made;
}

Evaluation evaluate_text(const models::Model& model, std::shared_ptr<const data::TokenFile> tokens,
                         const EvaluateOptions& options) {
  const config::ModelOptions& o = model.options();
  if (tokens->vocabulary_size() != o.vocabulary_size) {
    misuse("{}: holds tokens of {} with {} ids, but the model's vocabulary_size is {}", tokens->name(),
           tokens->tokenizer_name(), tokens->vocabulary_size(), o.vocabulary_size);
  }
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  if (options.stride > 0) {
    Evaluation result = evaluate_windows(models::as_language_model(model, "evaluate --stride"), *tokens, options);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }
  // A layer's memory depends on the one below it a chunk earlier, and so on down to the embedding.
  data::EvaluationPass pass(tokens, {.batch = std::max<std::int64_t>(options.batch_size, 1),
                                     .length = o.context_length,
                                     .warming = o.memory_length > 0 ? o.n_layers : 0,
                                     .most_predictions = options.most_tokens});
  std::optional<Progress> progress;
  if (options.show_progress) {
    progress.emplace("evaluate", pass.batches(), "batch");
  }
  nn::Context context = options.context;
  context.training = false;

  models::Memory memory;
  data::EvaluationBatch batch;
  double sum = 0.0;
  Evaluation result;
  for (std::int64_t done = 1; result.complete && pass.next(batch); ++done) {
    if (batch.starts_afresh) {
      memory.forget();
    }
    memory = memory.narrow(0, batch.batch);
    const models::Loss loss = model.loss(to_batch(batch).to(model.device()), memory, context);
    sum += loss.cross_entropy.item<double>() * static_cast<double>(batch.valid);
    result.tokens += batch.valid;
    result.complete = !interrupted();
    if (progress) {
      progress->update(done, fmt::format("loss {:.4f}", sum / static_cast<double>(result.tokens)));
    }
  }
  set_figures(result, sum, *tokens);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::string data_identity(const data::TokenFile& tokens) {
  constexpr std::int64_t kStretches = 64, kLength = 16384;
  const std::int64_t length = std::min(tokens.size(), kLength);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
  Sha256 hash;
  std::int64_t hashed = 0;  // stretches of a short file would overlap
  for (std::int64_t i = 0; i < kStretches && hashed < tokens.size(); ++i) {
    const std::int64_t spread = (tokens.size() - length) / (kStretches - 1) * i;
    const std::int64_t begin = tokens.size() <= kStretches * kLength ? hashed : spread;
    const std::int64_t count = std::min(length, tokens.size() - begin);
    tokens.copy(begin, count, ids.data());
    hash.update(std::as_bytes(std::span(ids).first(static_cast<std::size_t>(count))));
    hashed += count;
  }
  return fmt::format("{}, {} tokens, {}", tokens.tokenizer_name(), tokens.size(), hash.hex().substr(0, 16));
}

}  // namespace headroom::tasks
