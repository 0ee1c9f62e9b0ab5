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

// A short file is cut into fewer streams: where each begins, context is missing.
data::BatchShape shape_of(const data::TokenFile& tokens, const config::ModelOptions& model, std::int64_t streams) {
  constexpr std::int64_t kChunks = 4;  // a stream, at least
  const std::int64_t most = tokens.size() / (kChunks * model.context_length);
  return {.batch = std::clamp(most, std::int64_t{1}, std::max(streams, std::int64_t{1})),
          .length = model.context_length};
}

}  // namespace

models::Batch to_batch(const data::Batch& batch) {
  models::Batch made;
  at::Tensor ids = at::empty({batch.batch, batch.length + 1}, at::kLong);
  std::copy(batch.tokens.begin(), batch.tokens.end(), ids.data_ptr<std::int64_t>());
  made.tensors["tokens"] = std::move(ids);
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
  data::EvaluationPass pass(tokens, shape_of(*tokens, o, options.batch_size));
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
