#include "translation.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>

#include "data/text/token_cache.h"
#include "data/tokens/example_order.h"
#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "headroom/decode/generate.h"
#include "scores.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTranslation = "translation";

class PairTraining : public TrainingData {
 public:
  PairTraining(const fs::path& path, const tokenizers::Tokenizer& tokenizer, const config::Config& config)
      : file_(path),
        ends_(sentence_ends(tokenizer)),
        label_smoothing_(config.train.label_smoothing),
        batches_(file_, {.rows = config.train.batch_size,
                         .multiple = config.train.accumulate,
                         .tokens = config.train.batch_tokens,
                         .longest = config.model.context_length,
                         .seed = static_cast<std::uint64_t>(config.train.seed)}) {
    set(file_.identity(), &batches_);
    if (!file_.remarks().empty()) {
      log_info("data: {}", file_.remarks());
    }
    if (batches_.too_long() > 0) {
      log_info("data: {} of {} pairs excluded, because a side has more than {} tokens (model.context_length - 1)",
               batches_.too_long(), file_.size(), config.model.context_length - 1);
    }
  }

  models::Batch next() override {
    std::vector<Tokens> sources, targets;
    for (const std::int64_t pair : batches_.next()) {
      file_.source(pair, sources.emplace_back());
      file_.target(pair, targets.emplace_back());
    }
    models::Batch batch = pair_batch(sources, targets, ends_);
    batch.label_smoothing = label_smoothing_;
    return batch;
  }

 private:
  data::PairFile file_;
  SentenceEnds ends_;
  double label_smoothing_;
  data::PairBatches batches_;
};

struct BleuFigure {
  const char* name;
  BleuOptions options;
};
constexpr BleuFigure kBleuFigures[] = {{"bleu", {}},
                                       {"tokenised_bleu", {.tokens = BleuTokens::blanks, .smooth = false}},
                                       {"compound_bleu", {.tokens = BleuTokens::compounds, .smooth = false}}};

std::string tokens_of(const char* figure) {
  return fmt::format("{}.tokens", figure);
}

// Calls visit(name, sum, count) for each Sum that stores the counts: matching and all n-grams of each order, and the
// tokens of the translations and of the references.
template <class Visit>
void visit_counts(const char* figure, BleuCounts& counts, const Visit& visit) {
  for (std::size_t n = 0; n < counts.all.size(); ++n) {
    visit(fmt::format("{}.{}grams", figure, n + 1), counts.right[n], counts.all[n]);
  }
  visit(tokens_of(figure), counts.tokens, counts.reference_tokens);
}

template <class Visit>
void visit_counts(const char* figure, ChrfCounts& counts, const Visit& visit) {
  for (std::size_t n = 0; n < ChrfCounts::kOrders; ++n) {
    std::int64_t none = 0;
    visit(fmt::format("{}.{}grams", figure, n + 1), counts.right[n], counts.all[n]);
    visit(fmt::format("{}.{}grams_of_references", figure, n + 1), none, counts.reference[n]);
  }
}

template <class Counts>
void add_counts(const char* figure, Counts counts, Sums& sums) {
  visit_counts(figure, counts, [&](const std::string& name, std::int64_t sum, std::int64_t count) {
    sums[name].add(static_cast<double>(sum), count);
  });
}

template <class Counts>
Counts read_counts(const char* figure, const Sums& sums) {
  Counts counts;
  visit_counts(figure, counts, [&](const std::string& name, std::int64_t& sum, std::int64_t& count) {
    const Sum stored = sum_of(sums, name);
    sum = static_cast<std::int64_t>(stored.sum);
    count = stored.count;
  });
  return counts;
}

constexpr const char* kChrf = "chrf";

class PairEvaluation : public EvaluationData {
 public:
  PairEvaluation(std::vector<data::TextPair> pairs, std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                 const config::DecodingOptions& decoding)
      : pairs_(std::move(pairs)),
        tokenizer_(std::move(tokenizer)),
        decoding_(decoding),
        ends_(sentence_ends(*tokenizer_)) {
    for (const data::TextPair& pair : pairs_) {
      sources_.push_back(tokenizer_->for_sources().encode(pair.source));
      targets_.push_back(tokenizer_->for_targets().encode(pair.target));
    }
  }

  Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const override {
    const models::EncoderDecoder& translator = models::as_encoder_decoder(model, kTranslation);
    decode::require_tokenizer_of(model, *tokenizer_, kTranslation);
    const auto start = std::chrono::steady_clock::now();
    const std::vector<std::int64_t> pairs = part(options.most_tokens, model.options().context_length);
    Evaluation result = measure_loss(model, pairs, options);
    if (result.complete) {
      measure_translations(translator, pairs, options, result);
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }
  double rows(const config::Config& config, std::int64_t most_tokens) const override {
    constexpr double kSearch = 8.0;  // cost of beam search per hypothesis, in forward passes
    return static_cast<double>(part(most_tokens, config.model.context_length).size()) *
           (1.0 + kSearch * static_cast<double>(decoding_.beam_size));
  }
  std::string identity() const override {
    Sha256 hash;
    for (const data::TextPair& pair : pairs_) {
      hash.update(pair.source + "\n" + pair.target + "\n");
    }
    return fmt::format("{} pairs, {}", pairs_.size(), data::dataset_id(hash));
  }

 private:
  // Returns the pairs to read: all pairs, or an evenly spread part with at most `most_tokens` predictions. A part
  // contains only pairs that fit the context, so that every part has a loss.
  std::vector<std::int64_t> part(std::int64_t most_tokens, std::int64_t context_length) const {
    std::vector<std::int64_t> all(pairs_.size()), fits, chosen;
    std::iota(all.begin(), all.end(), std::int64_t{0});
    std::ranges::copy_if(all, std::back_inserter(fits), [&](std::int64_t pair) { return fit(pair, context_length); });
    const auto pair_at = [&](std::int64_t i) { return fits[static_cast<std::size_t>(i)]; };
    const auto cost = [&](std::int64_t i) { return std::ssize(targets_[static_cast<std::size_t>(pair_at(i))]) + 1; };
    std::ranges::transform(data::spread_units(std::ssize(fits), most_tokens, cost), std::back_inserter(chosen),
                           pair_at);
    return chosen.size() == fits.size() ? all : chosen;
  }

  Evaluation measure_loss(const models::Model& model, const std::vector<std::int64_t>& pairs,
                          const EvaluateOptions& options) const {
    const std::vector<std::int64_t> order = fitting(pairs, model.options().context_length);
    const BatchLimits limits{.rows = options.batch_size, .tokens = options.batch_tokens};
    const auto length = [&](std::size_t i) { return longer(order[i]); };
    const auto end_of = [&](std::int64_t begin) {
      return static_cast<std::int64_t>(batch_end(static_cast<std::size_t>(begin), order.size(), limits, length));
    };
    const auto measure = [&](std::int64_t begin, std::int64_t end, const nn::Context& context) -> PlacedSums {
      std::vector<Tokens> sources, targets;
      for (const std::int64_t pair : units_of(order, begin, end)) {
        sources.push_back(sources_[static_cast<std::size_t>(pair)]);
        targets.push_back(targets_[static_cast<std::size_t>(pair)]);
      }
      const models::Batch batch = pair_batch(sources, targets, ends_);
      models::Memory none;
      return {{begin, cross_entropy(model, batch, batch.n_targets(), none, context)}};
    };
    return run_evaluation(options, {.unit = "pair", .units = std::ssize(order), .end_of = end_of, .evaluate = measure});
  }

  // Returns the pairs whose sides both fit the context, sorted by length.
  std::vector<std::int64_t> fitting(const std::vector<std::int64_t>& pairs, std::int64_t context_length) const {
    std::vector<std::int64_t> order;
    std::ranges::copy_if(pairs, std::back_inserter(order),
                         [&](std::int64_t pair) { return fit(pair, context_length); });
    if (order.empty()) {
      user_error("{}: none of {} pairs has at most {} tokens on both sides (model.context_length - 1)", kTranslation,
                 pairs.size(), context_length - 1);
    }
    if (order.size() < pairs.size()) {
      log_info(
          "evaluate: {} of {} pairs have a side of more than {} tokens; they are excluded from the loss, and "
          "their sources are cut for BLEU",
          pairs.size() - order.size(), pairs.size(), context_length - 1);
    }
    std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return longer(a) < longer(b); });
    return order;
  }

  bool fit(std::int64_t pair, std::int64_t context_length) const {
    return static_cast<std::int64_t>(longer(pair)) < context_length;
  }
  // Returns the number of tokens in a pair's longer side.
  std::size_t longer(std::int64_t pair) const {
    const auto i = static_cast<std::size_t>(pair);
    return std::max(sources_[i].size(), targets_[i].size());
  }

  void measure_translations(const models::EncoderDecoder& model, const std::vector<std::int64_t>& pairs,
                            const EvaluateOptions& options, Evaluation& result) const {
    std::vector<std::string> sources, references;
    for (const std::int64_t pair : pairs) {
      sources.push_back(pairs_[static_cast<std::size_t>(pair)].source);
      references.push_back(pairs_[static_cast<std::size_t>(pair)].target);
    }
    const std::vector<std::string> translations = translate(model, *tokenizer_, sources, decoding_, options).texts;
    result.complete = translations.size() == references.size();
    if (result.complete) {
      for (const BleuFigure& figure : kBleuFigures) {
        add_counts(figure.name, count_bleu(translations, references, figure.options.tokens), result.sums);
      }
      add_counts(kChrf, count_chrf(translations, references), result.sums);
    }
  }

  std::vector<data::TextPair> pairs_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  config::DecodingOptions decoding_;
  SentenceEnds ends_;
  std::vector<Tokens> sources_, targets_;
};

FigureKind score_kind(const std::string& name, const std::string& words, Shown shown = Shown::files) {
  return {.name = name,
          .metric = "validation_" + name,
          .words = words,
          .unit = "",
          .better = Better::higher,
          .shown = shown,
          .decimals = 2,
          .range = 100.0};
}

Figures translation_figures(const Sums& sums) {
  Figures figures = loss_and_perplexity(sums);
  for (const BleuFigure& figure : kBleuFigures) {
    if (sums.contains(tokens_of(figure.name))) {
      figures[figure.name] = bleu_of(read_counts<BleuCounts>(figure.name, sums), figure.options);
    }
  }
  if (sums.contains("chrf.1grams")) {
    figures[kChrf] = chrf_of(read_counts<ChrfCounts>(kChrf, sums));
  }
  return figures;
}

TaskData open_pairs(const config::Config& config, const fs::path& cache) {
  if (config.data.train.empty()) {
    user_error("data.train: names no files; {} needs files of sentence pairs", kTranslation);
  }
  const data::PreparedPairs prepared =
      data::prepare_pairs(config.data, config.tokenizer, cache, config.model.source_vocabulary_size);
  const tokenizers::Tokenizer& tokenizer = *prepared.tokenizer;
  if (!config.vocabulary_follows_tokenizer && tokenizer.vocabulary_size() != config.model.vocabulary_size) {
    user_error("model.vocabulary_size: must be {}, the size of tokenizer {}, got {}", tokenizer.vocabulary_size(),
               tokenizer.name(), config.model.vocabulary_size);
  }
  tokenizers::require_source_vocabulary(tokenizer, config.model.source_vocabulary_size, kTranslation);
  return {.tokenizer = prepared.tokenizer,
          .training = std::make_unique<PairTraining>(prepared.train, tokenizer, config),
          .validation = std::make_unique<PairEvaluation>(data::validation_pairs(config.data), prepared.tokenizer,
                                                         config.decoding)};
}

}  // namespace

const Task& translation() {
  static const Task kTask(
      {.name = kTranslation,
       .protocol =
           "BLEU (13a tokens, cased) and chrF are sacreBLEU's, over the whole validation data translated by beam "
           "search; perplexity is exp(cross-entropy per target token) without label smoothing",
       .figures = {loss_kind("token"), loss_error_kind(), perplexity_kind(Shown::table),
                   score_kind("bleu", "BLEU", Shown::headline), score_kind("tokenised_bleu", "tokenised BLEU"),
                   score_kind("compound_bleu", "tokenised BLEU of split compounds"), score_kind("chrf", "chrF")},
       .figures_of = translation_figures,
       .open = open_pairs,
       .open_evaluation = [](const EvaluationRequest& request) -> std::unique_ptr<EvaluationData> {
         const config::DataOptions& options = request.config.data;
         return std::make_unique<PairEvaluation>(
             request.files.empty() ? data::validation_pairs(options)
                                   : data::read_pairs({.source = request.files, .target = {}}, options),
             request.tokenizer, request.config.decoding);
       }});
  return kTask;
}

}  // namespace headroom::tasks
