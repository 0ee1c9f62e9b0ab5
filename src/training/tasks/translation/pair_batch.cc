#include "translation.h"

#include <algorithm>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::tasks {

namespace {

constexpr std::int64_t kNoTarget = -1;  // ignored by the loss

// Returns one row per sentence: token `before`, the sentence, token `after` (negative: omitted), padded with `fill`.
at::Tensor rows_of(const std::vector<Tokens>& sentences, std::int64_t before, std::int64_t after, std::int64_t fill) {
  const std::size_t longest = max_over(
      sentences, [](const Tokens& sentence) { return sentence.size(); }, std::size_t{0});
  const at::Tensor rows = at::full({std::ssize(sentences), static_cast<std::int64_t>(longest) + 1}, fill, at::kLong);
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    std::int64_t* out = rows.data_ptr<std::int64_t>() + i * (longest + 1);
    if (before >= 0) {
      *out++ = before;
    }
    out = std::copy(sentences[i].begin(), sentences[i].end(), out);
    if (after >= 0) {
      *out = after;
    }
  }
  return rows;
}

// Returns the mask of tokens that are not padding; undefined if there is no padding.
at::Tensor valid_of(const std::vector<Tokens>& sentences, const at::Tensor& rows) {
  const std::int64_t width = rows.size(1);
  const bool even =
      std::ranges::all_of(sentences, [&](const Tokens& sentence) { return std::ssize(sentence) + 1 == width; });
  if (even) {
    return {};
  }
  const at::Tensor valid = at::zeros(rows.sizes(), at::kBool);
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    std::fill_n(valid.data_ptr<bool>() + static_cast<std::int64_t>(i) * width, sentences[i].size() + 1, true);
  }
  return valid;
}

}  // namespace

SentenceEnds sentence_ends(const tokenizers::Tokenizer& tokenizer) {
  for (const tokenizers::Tokenizer* side : {&tokenizer.for_sources(), &tokenizer.for_targets()}) {
    if (side->begin_id() < 0 || side->end_id() < 0) {
      user_error("tokenizer: translation needs <s> and </s>, as of kind \"sentencepiece\", but {} has none",
                 side->name());
    }
  }
  return {.begin = tokenizer.begin_id(), .end = tokenizer.end_id(), .source_end = tokenizer.for_sources().end_id()};
}

Sources source_batch(const std::vector<Tokens>& sentences, SentenceEnds ends) {
  Sources sources;
  sources.tokens = rows_of(sentences, kNoTarget, ends.source_end, ends.source_end);
  sources.valid = valid_of(sentences, sources.tokens);
  return sources;
}

models::Batch pair_batch(const std::vector<Tokens>& sources, const std::vector<Tokens>& targets, SentenceEnds ends) {
  models::Batch batch;
  const Sources read = source_batch(sources, ends);
  batch.tensors["source"] = read.tokens;
  batch.tensors["target"] = rows_of(targets, ends.begin, kNoTarget, ends.end);
  batch.tensors["next"] = rows_of(targets, kNoTarget, ends.end, kNoTarget);
  if (read.valid.defined()) {
    batch.tensors["valid_source"] = read.valid;
  }
  if (const at::Tensor valid = valid_of(targets, batch.tensors["target"]); valid.defined()) {
    batch.tensors["valid_target"] = valid;
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    batch.targets.push_back(std::ssize(targets[i]) + 1);
    batch.tokens += std::ssize(sources[i]) + std::ssize(targets[i]) + 2;
  }
  batch.resets_memory = true;
  return batch;
}

}  // namespace headroom::tasks
