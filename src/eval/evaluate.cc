#include "headroom/eval/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"

namespace headroom::eval {

at::Tensor to_tensor(const data::Batch& batch, const models::LanguageModel& model) {
  at::Tensor ids = at::empty({batch.batch, batch.length + 1}, at::kLong);
  std::copy(batch.tokens.begin(), batch.tokens.end(), ids.data_ptr<std::int64_t>());
  return ids.to(model.parameters().all().front().tensor.device());
}

void check_tokenizer(const Checkpoint& checkpoint, const data::TokenFile& tokens) {
  if (tokens.tokenizer_name() != checkpoint.tokenizer->name()) {
    misuse("{}: was made with tokenizer {}, but the checkpoint's is {}", tokens.path().string(),
           tokens.tokenizer_name(), checkpoint.tokenizer->name());
  }
}

namespace {

// A short file is cut into fewer streams: where each begins, context is missing.
data::BatchShape shape_of(const data::TokenFile& tokens, const config::ModelOptions& model, std::int64_t streams) {
  constexpr std::int64_t kChunks = 4;  // a stream, at least
  const std::int64_t most = tokens.size() / (kChunks * model.context_length);
  return {.batch = std::clamp(most, std::int64_t{1}, std::max(streams, std::int64_t{1})),
          .length = model.context_length};
}

}  // namespace

Evaluation evaluate(const models::LanguageModel& model, std::shared_ptr<const data::TokenFile> tokens,
                    const EvaluateOptions& options) {
  if (tokens->vocabulary_size() != model.options().vocabulary_size) {
    misuse("{}: holds tokens of {} with {} ids, but the model's vocabulary_size is {}", tokens->path().string(),
           tokens->tokenizer_name(), tokens->vocabulary_size(), model.options().vocabulary_size);
  }
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  data::EvaluationPass pass(tokens, shape_of(*tokens, model.options(), options.batch_size));
  std::optional<Progress> progress;
  if (options.show_progress) {
    progress.emplace("evaluate", pass.batches(), "batch");
  }
  nn::Context context = options.context;
  context.training = false;

  models::Memory memory;
  data::Batch batch;
  double sum = 0.0;
  Evaluation result;
  for (std::int64_t done = 1; result.complete && pass.next(batch); ++done) {
    if (batch.starts_afresh) {
      memory.forget();
    }
    const models::Loss loss = model.loss(to_tensor(batch, model), memory, context);
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
  result.loss = sum / predicted;
  result.perplexity = std::exp(result.loss);
  result.bits_per_byte = sum / std::numbers::ln2 / bytes;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace headroom::eval
