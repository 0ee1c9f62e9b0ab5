// Translates sentences with a trained encoder-decoder.
#include <algorithm>
#include <span>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/decode/generate.h"
#include "training/tasks/evaluation_loop.h"
#include "translation.h"

namespace headroom::tasks {
namespace {

// Joins the lines of decoded text, because a translation must be a single line.
std::string one_line_of(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

// Returns the places of the sentences that are not blank, sorted by the lengths of `sources`.
std::vector<std::size_t> order_of(const std::vector<std::string>& sentences, const std::vector<Tokens>& sources) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    if (sentences[i].find_first_not_of(" \t\r") != std::string::npos) {
      order.push_back(i);
    }
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return sources[i].size(); });
  return order;
}

// Merges the translations of all ranks into `all`. Returns false if any rank was interrupted.
bool merge(const Json& mine, bool complete, Translations& all, ProcessGroup& group) {
  all.tokens = 0;
  for (const Json& theirs : gather(group, {{"complete", complete}, {"sentences", mine}}, "translate")) {
    complete = complete && theirs.at("complete").get<bool>();
    for (const Json& sentence : theirs.at("sentences")) {
      all.texts[sentence[0].get<std::size_t>()] = sentence[1].get<std::string>();
      all.tokens += sentence[2].get<std::int64_t>();
    }
  }
  return complete;
}

}  // namespace

Translations translate(const models::EncoderDecoder& model, const tokenizers::Tokenizer& tokenizer,
                       const std::vector<std::string>& sentences, const config::DecodingOptions& decoding,
                       const EvaluateOptions& options) {
  const config::ModelOptions& o = model.options();
  const SentenceEnds ends = sentence_ends(tokenizer);
  decode::require_tokenizer_of(model, tokenizer, "translate");
  std::vector<Tokens> sources;
  std::int64_t cut = 0;
  const auto longest = static_cast<std::size_t>(o.context_length - 1);
  for (const std::string& sentence : sentences) {
    sources.push_back(tokenizer.for_sources().encode(sentence));
    cut += sources.back().size() > longest ? 1 : 0;
    sources.back().resize(std::min(sources.back().size(), longest));
  }
  const std::vector<std::size_t> order = order_of(sentences, sources);
  nn::Context context = options.context;
  context.usage = nullptr;
  const decode::SearchOptions search{.decoding = decoding, .begin_id = ends.begin, .end_id = ends.end};
  Translations translations{.texts = std::vector<std::string>(sentences.size()), .cut = cut};
  const BatchLimits limits{.rows = options.batch_size, .tokens = options.batch_tokens};
  const auto length = [&](std::size_t i) { return sources[order[i]].size(); };
  Json mine = Json::array();  // [sentence, translation, tokens]
  const auto end_of = [&](std::int64_t begin) {
    return static_cast<std::int64_t>(batch_end(static_cast<std::size_t>(begin), order.size(), limits, length));
  };
  bool complete =
      for_each_batch(options, {.title = "translate", .unit = "sentence", .units = std::ssize(order), .end_of = end_of},
                     [&](std::int64_t begin, std::int64_t end) {
                       const std::span now(order.begin() + begin, order.begin() + end);
                       Sources batch = source_batch(transformed(now, [&](std::size_t i) { return sources[i]; }), ends);
                       batch.tokens = batch.tokens.to(model.device());
                       batch.valid = batch.valid.defined() ? batch.valid.to(model.device()) : batch.valid;
                       const std::vector<decode::Hypothesis> found =
                           decode::beam_search(model, batch.tokens, batch.valid, search, context);
                       for (std::size_t i = 0; i < now.size(); ++i) {
                         const Tokens& tokens = found[i].tokens;
                         translations.texts[now[i]] = one_line_of(tokenizer.decode(tokens));
                         translations.tokens += std::ssize(tokens);
                         mine.push_back({now[i], translations.texts[now[i]], tokens.size()});
                       }
                       return std::string();
                     });
  if (options.group->size() > 1) {
    complete = merge(mine, complete, translations, *options.group);
  }
  return complete ? translations : Translations();
}

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
    out = std::ranges::copy(sentences[i], out).out;
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
