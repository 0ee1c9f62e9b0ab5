#include "language_modelling.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <span>
#include <string_view>

#include "data/synthetic/composition_task.h"
#include "data/text/token_cache.h"
#include "data/tokens/example_order.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::tasks {
namespace {

// Adds the answers as one sequence, or as one sequence per answer if the tokenizer merges an answer with the text after
// it.
void add_sequences(std::span<const Sequence> answers, std::vector<Sequence>& all) {
  if (answers.empty()) {
    return;
  }
  // A single sequence works if each answer's tokens are a prefix of the last answer's.
  Sequence whole = answers.back();
  whole.scored.clear();
  for (const Sequence& answer : answers) {
    const bool is_prefix =
        std::equal(answer.tokens.begin(), answer.tokens.end(), whole.tokens.begin(),
                   whole.tokens.begin() + std::min(std::ssize(answer.tokens), std::ssize(whole.tokens)));
    if (!is_prefix) {
      all.insert(all.end(), answers.begin(), answers.end());
      return;
    }
    whole.scored.push_back(answer.scored.front());
  }
  all.push_back(std::move(whole));
}

// The validation rows whose answers are scored.
class AnswerRows {
 public:
  AnswerRows(const config::Config& config, const tokenizers::Tokenizer& tokenizer) {
    constexpr std::int64_t kMostRows = 256;  // 1536 answers: an accuracy's standard error is at most 0.013
    const data::CompositionRows generated = data::composition_rows(config.data, data::Split::validation);
    for (std::int64_t i = 0; i < std::min(generated.rows, kMostRows); ++i) {
      const std::string where = fmt::format("generated row {}", i);
      rows_.push_back(answers_of(data::parse_composition_row(data::generated_row(generated, i).text, where),
                                 {.tokenizer = tokenizer, .model = config.model, .where = where}));
    }
  }

  // Returns the sequences of an evenly spread part of the rows, with at most `most_tokens` tokens in total.
  std::vector<Sequence> within(std::int64_t most_tokens) const {
    const auto tokens_of = [&](std::int64_t row) {
      const std::vector<Sequence>& all = rows_[static_cast<std::size_t>(row)];
      return sum_over(all, [](const Sequence& sequence) { return std::ssize(sequence.tokens); });
    };
    std::vector<Sequence> chosen;
    for (const std::int64_t i : data::spread_units(std::ssize(rows_), most_tokens, tokens_of)) {
      const std::vector<Sequence>& row = rows_[static_cast<std::size_t>(i)];
      chosen.insert(chosen.end(), row.begin(), row.end());
    }
    return chosen;
  }
  std::string identity() const {
    Sha256 hash;
    for (const std::vector<Sequence>& row : rows_) {
      for (const Sequence& sequence : row) {
        hash.update(std::as_bytes(std::span(sequence.tokens)));
      }
    }
    return fmt::format("{} rows, {}", rows_.size(), data::dataset_id(hash));
  }

 private:
  std::vector<std::vector<Sequence>> rows_;
};

constexpr std::string_view kComposition = "composition";
constexpr const char *kRightAnswers = "right_answers", *kAnswerLogProbability = "answer_log_probability";

Sums to_sums(const Scores& scores) {
  Sum right, log_probability;
  for (const std::vector<SpanScore>& sequence : scores.spans) {
    for (const SpanScore& answer : sequence) {
      right.add(answer.likeliest ? 1.0 : 0.0);
      log_probability.add(answer.log_probability);
    }
  }
  return {{kRightAnswers, right}, {kAnswerLogProbability, log_probability}};
}

class AnswerEvaluation : public EvaluationData {
 public:
  AnswerEvaluation(std::unique_ptr<EvaluationData> text, AnswerRows rows)
      : text_(std::move(text)), rows_(std::move(rows)) {}

  Evaluation evaluate(const models::Model& model, const EvaluateOptions& options) const override {
    Evaluation result = text_->evaluate(model, options);
    if (!result.complete) {
      return result;
    }
    const auto start = std::chrono::steady_clock::now();
    EvaluateOptions for_answers = options;
    for_answers.context.usage = nullptr;  // count expert usage on the text only
    const Scores scores = score(models::as_language_model(model, kComposition), rows_.within(options.most_tokens),
                                for_answers, "answers");
    result.complete = scores.complete;
    if (scores.complete) {
      add(result.sums, to_sums(scores));
    }
    result.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }
  double rows(const config::Config& config, std::int64_t most_tokens) const override {
    const std::int64_t tokens =
        sum_over(rows_.within(most_tokens), [](const Sequence& sequence) { return std::ssize(sequence.tokens); });
    return text_->rows(config, most_tokens) +
           static_cast<double>(tokens) / static_cast<double>(config.model.context_length);
  }
  std::string identity() const override { return fmt::format("{}; {}", text_->identity(), rows_.identity()); }
  std::string sample_prompt() const override { return text_->sample_prompt(); }

 private:
  std::unique_ptr<EvaluationData> text_;
  AnswerRows rows_;
};

std::vector<FigureKind> kinds() {
  std::vector<FigureKind> all = language_modelling().figures();
  for (FigureKind& kind : all) {
    kind.shown = kind.name == "perplexity" ? Shown::table : Shown::files;
  }
  const FigureKind accuracy = accuracy_kind(Shown::headline, "accuracy of answers");
  const FigureKind perplexity = {.name = "answer_perplexity",
                                 .metric = "answer_perplexity",
                                 .words = "perplexity of answers",
                                 .unit = "",
                                 .shown = Shown::table};
  all.insert(all.begin() + 1, {accuracy, perplexity});  // after the training loss
  return all;
}

std::unique_ptr<EvaluationData> with_answers(std::unique_ptr<EvaluationData> text, const config::Config& config,
                                             const tokenizers::Tokenizer& tokenizer) {
  return std::make_unique<AnswerEvaluation>(std::move(text), AnswerRows(config, tokenizer));
}

}  // namespace

std::vector<Sequence> answers_of(const data::CompositionRow& row, const AnswersReader& reader) {
  std::vector<Sequence> answers;
  for (const auto& answer : row.answers) {
    const std::string_view text = row.text;
    const std::size_t blank = text.substr(0, answer.begin).ends_with(' ') ? 1 : 0;
    answers.push_back(to_sequence(reader.tokenizer, text.substr(0, answer.begin - blank),
                                  text.substr(answer.begin - blank, answer.end - answer.begin + blank), reader.where,
                                  reader.prefix));
  }
  const config::ModelOptions& model = reader.model;
  const auto beyond = std::ranges::find_if(answers, [&](const Sequence& answer) {
    return model.memory_length == 0 && std::ssize(answer.tokens) > model.context_length + 1;
  });
  std::vector<Sequence> all;
  add_sequences({answers.begin(), beyond}, all);
  std::move(beyond, answers.end(), std::back_inserter(all));
  return all;
}

const Task& composition() {
  static const Task kTask(
      {.name = kComposition,
       .protocol = "accuracy is the fraction of the answers in up to 256 validation rows that greedy decoding would "
                   "generate; their perplexity is exp(-mean log-probability of an answer); perplexity is "
                   "exp(cross-entropy per token) over the whole validation text",
       .figures = kinds(),
       .figures_of =
           [](const Sums& sums) {
             Figures figures = language_modelling().figures_of(sums);
             if (sums.contains(kRightAnswers)) {  // text from files has no answers
               figures["accuracy"] = mean(sums, kRightAnswers);
               figures["answer_perplexity"] = std::exp(-mean(sums, kAnswerLogProbability));
             }
             return figures;
           },
       .open =
           [](const config::Config& config, const std::filesystem::path& cache) {
             TaskData data = language_modelling().open(config, cache);
             data.validation = with_answers(std::move(data.validation), config, *data.tokenizer);
             return data;
           },
       .open_evaluation =
           [](const EvaluationRequest& request) {
             std::unique_ptr<EvaluationData> text = language_modelling().open_evaluation(request);
             return request.files.empty() ? with_answers(std::move(text), request.config, *request.tokenizer)
                                          : std::move(text);
           }});
  return kTask;
}

}  // namespace headroom::tasks
