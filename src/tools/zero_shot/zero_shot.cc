#include "zero_shot.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "foundation/core/machine/log.h"
#include "foundation/core/random.h"
#include "foundation/core/text/message.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "puzzles.h"
#include "questions.h"
#include "training/tasks/language/scoring.h"

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
    user_error("evaluate: --task: there is no \"{}\"{}; there are {}", name,
               near.empty() ? "" : fmt::format(", did you mean {}?", near), fmt::join(names, ", "));
  }
  return *found;
}

// Where the solved examples in front of questions come from.
class Examples {
 public:
  // `own`: the questions that are asked are drawn from, but never the one that is asked.
  Examples(const std::vector<Question>& pool, std::int64_t shots, bool own) : pool_(pool), shots_(shots), own_(own) {}

  // In front of question `asked`: the same ones for every model; empty for no shots.
  std::string in_front_of(std::size_t asked) const {
    Random random(mix(0, asked));
    std::vector<std::size_t> chosen;
    std::string text;
    while (std::ssize(chosen) < shots_) {
      const auto draw = static_cast<std::size_t>(random.below(pool_.size()));
      if ((own_ && draw == asked) || std::find(chosen.begin(), chosen.end(), draw) != chosen.end()) {
        continue;
      }
      chosen.push_back(draw);
      const Choice& right = pool_[draw].choices[pool_[draw].gold];
      text += right.context + right.continuation + "\n\n";
    }
    return text;
  }

 private:
  const std::vector<Question>& pool_;
  std::int64_t shots_;
  bool own_;
};

// What is asked, and what examples are drawn from.
struct Questions {
  QuestionSets asked, solved;  // solved: empty, the same

  bool own() const { return solved.empty(); }
  const std::vector<Question>& pool_for(const std::string& subset) const {
    if (own()) {
      return asked.at(subset);
    }
    const auto same = solved.find(subset);
    return same == solved.end() ? solved.begin()->second : same->second;
  }
};

std::vector<Sequence> sequences_of(const Questions& questions, const tokenizers::Tokenizer& tokenizer,
                                   const ZeroShotRequest& request) {
  std::vector<Sequence> sequences;
  for (const auto& [subset, asked] : questions.asked) {
    const Examples examples(questions.pool_for(subset), request.shots, questions.own());
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const std::string before = examples.in_front_of(i);
      for (const Choice& choice : asked[i].choices) {
        sequences.push_back(
            to_sequence(tokenizer, before + choice.context, choice.continuation, asked[i].where, request.beginning));
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

// Right by the test's measure, and by the sums a character.
struct Verdict {
  bool right = false, right_normalised = false;
};

Verdict judge(const Question& question, const std::vector<SpanScore>& choices, Measure measure) {
  std::vector<double> sums, per_character;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const double tokens = static_cast<double>(std::max<std::int64_t>(choices[i].tokens, 1));
    sums.push_back(choices[i].log_probability / (measure == Measure::per_token ? tokens : 1.0));
    per_character.push_back(choices[i].log_probability / characters_of(question.choices[i].continuation));
  }
  const bool greedy = measure == Measure::greedy || measure == Measure::target;
  return {.right = greedy ? choices.front().likeliest : wins(sums, question.gold),
          .right_normalised = wins(per_character, question.gold)};
}

Json item_of(const Question& question, const std::vector<SpanScore>& scores, const Verdict& verdict) {
  Json choices = Json::array();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    choices.push_back({{"context", question.choices[i].context},
                       {"continuation", question.choices[i].continuation},
                       {"log_probability", scores[i].log_probability},
                       {"tokens", scores[i].tokens},
                       {"greedy", scores[i].likeliest}});
  }
  return {{"question", question.where},
          {"right", verdict.right},
          {"right_normalised", verdict.right_normalised},
          {"gold", question.gold},
          {"choices", std::move(choices)}};
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
    user_error("{}: has the fields of {}, but --task is {}", question.where, question.of, test.name);
  }
  const std::size_t n = question.choices.size();
  if (test.measure == Measure::choice && (n < test.fewest || n > test.most)) {
    user_error(
        "{}: has {} choices, but --task is {}, whose questions have {}", question.where, n, test.name,
        test.fewest == test.most ? fmt::format("{}", test.fewest) : fmt::format("{} to {}", test.fewest, test.most));
  }
}

void check(const Test& test, const QuestionSets& sets, const std::filesystem::path& data) {
  for (const auto& [subset, questions] : sets) {
    if (questions.empty()) {
      user_error("{}: holds no questions", data.string());
    }
    for (const Question& question : questions) {
      check_name(test, question);
    }
  }
}

Questions read_questions(const Test& test, const ZeroShotRequest& request) {
  if (request.shots < 0 || (request.shots > 0 && !test.takes_shots)) {
    user_error("evaluate: --shots: must be 0 with --task {}, got {}", test.name, request.shots);
  }
  if (request.shots == 0 && !request.shots_from.empty()) {
    user_error("evaluate: --shots-from: needs --shots, how many of its questions are put in front of each");
  }
  const auto read = [&](const std::filesystem::path& data) {
    QuestionSets sets = test.read(data::read_documents(data, test.wanted));
    check(test, sets, data);
    return sets;
  };
  Questions questions{.asked = read(request.data), .solved = {}};
  if (!request.shots_from.empty()) {
    questions.solved = read(request.shots_from);
  }
  for (const auto& [subset, asked] : questions.asked) {
    const std::int64_t pool = std::ssize(questions.pool_for(subset));
    if (request.shots >= pool + (questions.own() ? 0 : 1)) {
      user_error("evaluate: --shots: must be {} {}, the questions of {}, got {}", questions.own() ? "below" : "at most",
                 pool, (questions.own() ? request.data : request.shots_from).string(), request.shots);
    }
  }
  return questions;
}

ZeroShotResult evaluate_questions(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                  const ZeroShotRequest& request) {
  const Test& test = test_named(request.task);
  const Questions questions = read_questions(test, request);
  const std::vector<Sequence> sequences = sequences_of(questions, tokenizer, request);
  const Scores scores = score(model, sequences, request.options, "evaluate " + request.task);
  ZeroShotResult result{.task = request.task,
                        .shots = request.shots,
                        .shots_from = (questions.own() ? request.data : request.shots_from).string(),
                        .begin = request.beginning.kind,
                        .normalised = test.measure == Measure::choice,
                        .perplexity = test.measure == Measure::greedy || test.measure == Measure::target,
                        .of_tokens = test.measure == Measure::target,
                        .truncated = scores.truncated,
                        .texts = std::ssize(sequences),
                        .tokens = scores.tokens,
                        .complete = scores.complete};
  if (request.shots > 0 && questions.own()) {
    log_warning("the examples in front of each question are other questions of {}: --shots-from names a file for them",
                request.data.string());
  }
  std::size_t next = 0;
  for (const auto& [subset, asked] : questions.asked) {
    Tally& tally = result.subsets[subset];
    for (const Question& question : asked) {
      std::vector<SpanScore> choices;
      for (std::size_t i = 0; i < question.choices.size(); ++i) {
        const std::vector<SpanScore>& spans = scores.spans[next++];
        choices.push_back(spans.empty() ? SpanScore() : spans.front());
      }
      const Verdict verdict = judge(question, choices, test.measure);
      ++tally.questions;
      tally.right += verdict.right;
      tally.right_normalised += verdict.right_normalised;
      tally.log_probability += choices[question.gold].log_probability;
      tally.tokens += choices[question.gold].tokens;
      if (request.items) {
        result.items.push_back(item_of(question, choices, verdict));
        result.items.back()["subset"] = subset;
      }
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
  tokens += other.tokens;
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
  if (request.by_shots && request.task != kPuzzles) {
    user_error("evaluate: --by-shots: needs --task {}, whose answers follow several solved examples", kPuzzles);
  }
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
