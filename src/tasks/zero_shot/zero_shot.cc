#include "headroom/tasks/zero_shot.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "headroom/core/error.h"
#include "headroom/core/log.h"
#include "headroom/core/nearest.h"
#include "headroom/core/random.h"
#include "headroom/core/utf8.h"
#include "headroom/tasks/scoring.h"
#include "puzzles.h"
#include "questions.h"

namespace headroom::tasks {
namespace {

using zero_shot::Choice;
using zero_shot::Measure;
using zero_shot::Question;
using zero_shot::QuestionSets;
using zero_shot::Test;

constexpr std::string_view kPuzzles = "composition";

const Test& test_named(const std::string& name) {
  const std::vector<Test>& all = zero_shot::tests();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Test& test) { return test.name == name; });
  if (found == all.end()) {
    const std::vector<std::string> names = zero_shot_tasks();
    const std::string near = nearest(name, names);
    misuse("evaluate: --task: there is no \"{}\"{}; there are {}", name,
           near.empty() ? "" : fmt::format(", did you mean {}?", near), fmt::join(names, ", "));
  }
  return *found;
}

// Solved examples, others than question `asked`, the same ones for every model; empty for no shots.
std::string examples(const std::vector<Question>& questions, std::size_t asked, std::int64_t shots) {
  Random random(mix(0, asked));
  std::vector<std::size_t> chosen = {asked};
  std::string text;
  while (std::ssize(chosen) <= shots) {
    const auto draw = static_cast<std::size_t>(random.below(questions.size()));
    if (std::find(chosen.begin(), chosen.end(), draw) == chosen.end()) {
      chosen.push_back(draw);
      const Choice& right = questions[draw].choices[questions[draw].gold];
      text += right.context + right.continuation + "\n\n";
    }
  }
  return text;
}

std::vector<Sequence> sequences_of(const QuestionSets& sets, const tokenizers::Tokenizer& tokenizer,
                                   std::int64_t shots) {
  std::vector<Sequence> sequences;
  for (const auto& [subset, questions] : sets) {
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const std::string before = examples(questions, i, shots);
      for (const Choice& choice : questions[i].choices) {
        sequences.push_back(to_sequence(tokenizer, before + choice.context, choice.continuation, questions[i].where));
      }
    }
  }
  return sequences;
}

// The score above all others is the gold one's.
bool wins(const std::vector<double>& scores, std::size_t gold) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (i != gold && !(scores[gold] > scores[i])) {
      return false;
    }
  }
  return true;
}

// The blank in front is not the answer's.
double characters_of(std::string_view continuation) {
  continuation.remove_prefix(continuation.starts_with(' ') ? 1 : 0);
  return static_cast<double>(std::max<std::size_t>(count_characters(continuation), 1));
}

void count(Tally& tally, const Question& question, const std::vector<SpanScore>& choices, Measure measure) {
  std::vector<double> sums, per_character;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const double tokens = static_cast<double>(std::max<std::int64_t>(choices[i].tokens, 1));
    sums.push_back(choices[i].log_probability / (measure == Measure::per_token ? tokens : 1.0));
    per_character.push_back(choices[i].log_probability / characters_of(question.choices[i].continuation));
  }
  ++tally.questions;
  tally.right += measure == Measure::greedy ? choices.front().likeliest : wins(sums, question.gold);
  tally.right_normalised += wins(per_character, question.gold);
  tally.log_probability += choices[question.gold].log_probability;
}

// Whether `tests`, as "arc_easy or openbook_qa", has `name` among them.
bool names(std::string_view tests, std::string_view name) {
  constexpr std::string_view kBetween = ", ";
  const std::size_t at = tests.find(name), end = at + name.size();
  return at != std::string_view::npos && (at == 0 || tests[at - 1] == ' ') &&
         (end == tests.size() || kBetween.find(tests[end]) != std::string_view::npos);
}

// What a row's own fields say, against the name that it was given.
void check_name(const Test& test, const Question& question) {
  if (!question.of.empty() && !names(question.of, test.name)) {
    misuse("{}: has the fields of {}, but --task is {}", question.where, question.of, test.name);
  }
  const std::size_t n = question.choices.size();
  if (test.measure == Measure::choice && (n < test.fewest || n > test.most)) {
    misuse("{}: has {} choices, but --task is {}, whose questions have {}", question.where, n, test.name,
           test.fewest == test.most ? fmt::format("{}", test.fewest) : fmt::format("{} to {}", test.fewest, test.most));
  }
}

void check(const Test& test, const QuestionSets& sets, const ZeroShotRequest& request) {
  if (request.shots < 0 || (request.shots > 0 && !test.takes_shots)) {
    misuse("evaluate: --shots: must be 0 with --task {}, got {}", test.name, request.shots);
  }
  for (const auto& [subset, questions] : sets) {
    if (questions.empty()) {
      misuse("{}: holds no questions", request.data.string());
    }
    for (const Question& question : questions) {
      check_name(test, question);
    }
    if (request.shots >= std::ssize(questions)) {
      misuse("evaluate: --shots: must be below {}, the questions of {}, got {}", questions.size(),
             request.data.string(), request.shots);
    }
  }
}

ZeroShotResult evaluate_questions(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                  const ZeroShotRequest& request) {
  const Test& test = test_named(request.task);
  const QuestionSets sets = test.read(data::read_documents(request.data, test.wanted));
  check(test, sets, request);
  const std::vector<Sequence> sequences = sequences_of(sets, tokenizer, request.shots);
  const Scores scores = score(model, sequences, request.options, "evaluate " + request.task);
  ZeroShotResult result{.task = request.task,
                        .shots = request.shots,
                        .normalised = test.measure == Measure::choice,
                        .perplexity = test.measure == Measure::greedy,
                        .truncated = scores.truncated,
                        .texts = std::ssize(sequences),
                        .tokens = scores.tokens,
                        .complete = scores.complete};
  std::size_t next = 0;
  for (const auto& [subset, questions] : sets) {
    for (const Question& question : questions) {
      std::vector<SpanScore> choices;
      for (std::size_t i = 0; i < question.choices.size(); ++i) {
        const std::vector<SpanScore>& spans = scores.spans[next++];
        choices.push_back(spans.empty() ? SpanScore() : spans.front());
      }
      count(result.subsets[subset], question, choices, test.measure);
    }
  }
  return result;
}

double squared_error(const Tally& tally) {
  const double p = tally.accuracy();
  return tally.questions < 2 ? 0.0 : p * (1.0 - p) / static_cast<double>(tally.questions - 1);
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  questions += other.questions;
  right += other.right;
  right_normalised += other.right_normalised;
  log_probability += other.log_probability;
  return *this;
}

Tally ZeroShotResult::whole() const {
  Tally sum;
  for (const auto& [name, tally] : subsets) {
    sum += tally;
  }
  return sum;
}

double ZeroShotResult::accuracy() const {
  if (!mean_of_subsets) {
    return whole().accuracy();
  }
  double sum = 0.0;
  for (const auto& [name, tally] : subsets) {
    sum += tally.accuracy();
  }
  return sum / static_cast<double>(subsets.size());
}

double ZeroShotResult::accuracy_error() const {
  if (!mean_of_subsets) {
    return std::sqrt(squared_error(whole()));
  }
  double sum = 0.0;
  for (const auto& [name, tally] : subsets) {
    sum += squared_error(tally);
  }
  return std::sqrt(sum) / static_cast<double>(subsets.size());
}

std::vector<std::string> zero_shot_tasks() {
  std::vector<std::string> names;
  for (const Test& test : zero_shot::tests()) {
    names.emplace_back(test.name);
  }
  names.emplace_back(kPuzzles);
  return names;
}

void check_zero_shot_task(const std::string& name) {
  if (name != kPuzzles) {
    test_named(name);
  }
}

ZeroShotResult evaluate_zero_shot(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                  const ZeroShotRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  ZeroShotResult result = request.task == kPuzzles ? zero_shot::evaluate_puzzles(model, tokenizer, request)
                                                   : evaluate_questions(model, tokenizer, request);
  if (result.truncated > 0) {
    log_warning("{} of {} texts are longer than the model's context of {} tokens: their beginnings were left out",
                result.truncated, result.texts, model.options().context_length);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace headroom::tasks
