// Translates sentences with a trained encoder-decoder.
#include <algorithm>
#include <optional>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/decode/beam_search.h"
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
                       const std::vector<std::string>& sentences, const TranslateOptions& options) {
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
  std::optional<Progress> progress;
  if (options.show_progress) {
    progress.emplace("translate", std::ssize(order), "sentence");
  }
  nn::Context context = options.context;
  context.usage = nullptr;
  const decode::SearchOptions search{.decoding = options.decoding, .begin_id = ends.begin, .end_id = ends.end};
  Translations translations{.texts = std::vector<std::string>(sentences.size()), .cut = cut};
  const BatchLimits limits{.rows = options.batch_size, .tokens = options.batch_tokens};
  const auto length = [&](std::size_t i) { return sources[order[i]].size(); };
  Json mine = Json::array();  // [sentence, translation, tokens]
  bool complete = true;
  const int n = options.group->size();
  int turn = 0;
  for (std::size_t begin = 0, end = 0; begin < order.size() && complete; begin = end) {
    end = batch_end(begin, order.size(), limits, length);
    if (turn++ % n != options.group->rank()) {
      continue;
    }
    std::vector<Tokens> batch_sources;
    for (std::size_t i = begin; i < end; ++i) {
      batch_sources.push_back(sources[order[i]]);
    }
    Sources batch = source_batch(batch_sources, ends);
    batch.tokens = batch.tokens.to(model.device());
    batch.valid = batch.valid.defined() ? batch.valid.to(model.device()) : batch.valid;
    const std::vector<decode::Hypothesis> found =
        decode::beam_search(model, batch.tokens, batch.valid, search, context);
    for (std::size_t i = begin; i < end; ++i) {
      const Tokens& tokens = found[i - begin].tokens;
      translations.texts[order[i]] = one_line_of(tokenizer.decode(tokens));
      translations.tokens += std::ssize(tokens);
      if (n > 1) {
        mine.push_back({order[i], translations.texts[order[i]], tokens.size()});
      }
    }
    if (progress) {
      progress->update(static_cast<std::int64_t>(end));
    }
    complete = !interrupted() || end == order.size();
  }
  if (n > 1) {
    complete = merge(mine, complete, translations, *options.group);
  }
  return complete ? translations : Translations();
}

}  // namespace headroom::tasks
