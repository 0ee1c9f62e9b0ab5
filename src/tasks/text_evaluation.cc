// How well a model predicts a text.
#include <algorithm>
#include <chrono>
#include <numbers>
#include <optional>
#include <span>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"
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
    misuse("{}: holds tokens of {} with {} ids, but the model's vocabulary_size is {}", tokens->path().string(),
           tokens->tokenizer_name(), tokens->vocabulary_size(), o.vocabulary_size);
  }
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
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
  if (result.tokens == 0) {
    misuse("{}: holds {} tokens, too few to predict one", tokens->path().string(), tokens->size());
  }
  const auto predicted = static_cast<double>(result.tokens);
  const double bytes = static_cast<double>(tokens->text_bytes()) * predicted / static_cast<double>(tokens->size());
  result.figures = {{"loss", sum / predicted}, {"bits_per_byte", sum / std::numbers::ln2 / bytes}};
  language_modelling().complete(result.figures);
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
