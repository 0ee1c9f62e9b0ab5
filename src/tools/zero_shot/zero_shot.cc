#include "zero_shot.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "foundation/core/machine/log.h"
#include "foundation/core/random.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "questions.h"

namespace headroom::zero_shot {
namespace {

constexpr std::string_view kComposition = "composition";

const Benchmark& benchmark_named(const std::string& name) {
  const std::vector<Benchmark>& all = benchmarks();
  const auto found = std::ranges::find_if(all, [&](const Benchmark& benchmark) { return benchmark.name == name; });
  if (found == all.end()) {
    const std::vector<std::string> names = zero_shot_tasks();
    const std::string near = nearest(name, names);
    user_error("evaluate: --task: must be among {}, got {}{}", fmt::join(names, ", "), name,
               near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  return *found;
}

struct BenchmarkData {
  QuestionSets asked;
  QuestionSets solved;  // the pool of examples; empty: use the other questions of the task

  bool own() const { return solved.empty(); }
  const std::vector<Question>& pool_for(const std::string& subset) const {
    if (own()) {
      return asked.at(subset);
    }
    const auto same = solved.find(subset);
    return same == solved.end() ? solved.begin()->second : same->second;
  }
  // Returns the solved examples that precede question `i` of a subset, identical for every model. Examples drawn from
  // the questions themselves exclude the one being asked.
  std::string examples(const std::string& subset, std::size_t i, std::int64_t shots) const {
    const std::vector<Question>& pool = pool_for(subset);
    Random random(mix(0, i));
    std::vector<std::size_t> drawn;
    std::string text;
    while (std::ssize(drawn) < shots) {
      const auto draw = static_cast<std::size_t>(random.below(pool.size()));
      if ((own() && draw == i) || std::ranges::find(drawn, draw) != drawn.end()) {
        continue;
      }
      drawn.push_back(draw);
      const AnswerChoice& right = pool[draw].choices[pool[draw].gold];
      text += right.context + right.continuation + "\n\n";
    }
    return text;
  }
};

std::vector<tasks::Sequence> sequences_of(const BenchmarkData& questions, const tokenizers::Tokenizer& tokenizer,
                                          const ZeroShotRequest& request) {
  std::vector<tasks::Sequence> sequences;
  for (const auto& [subset, asked] : questions.asked) {
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const std::string before = questions.examples(subset, i, request.shots);
      for (const AnswerChoice& choice : asked[i].choices) {
        sequences.push_back(tasks::to_sequence(tokenizer, before + choice.context, choice.continuation, asked[i].where,
                                               request.prefix));
      }
    }
  }
  return sequences;
}

// Returns whether the score of `gold` is strictly the greatest.
bool wins(const std::vector<double>& scores, std::size_t gold) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (i != gold && !(scores[gold] > scores[i])) {
      return false;
    }
  }
  return true;
}

// Returns the length of a continuation without its leading blank, at least 1.
double characters_of(std::string_view continuation) {
  continuation.remove_prefix(continuation.starts_with(' ') ? 1 : 0);
  return static_cast<double>(std::max<std::size_t>(count_characters(continuation), 1));
}

struct Judgement {
  bool right = false, right_normalised = false;
};

Judgement judge(const Question& question, const std::vector<tasks::SpanScore>& choices, Scoring scoring) {
  std::vector<double> sums, per_character;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const double tokens = static_cast<double>(std::max<std::int64_t>(choices[i].tokens, 1));
    sums.push_back(choices[i].log_probability / (scoring == Scoring::per_token ? tokens : 1.0));
    per_character.push_back(choices[i].log_probability / characters_of(question.choices[i].continuation));
  }
  const bool greedy = scoring == Scoring::greedy || scoring == Scoring::target;
  if (greedy) {
    return {.right = choices.front().likeliest, .right_normalised = choices.front().likeliest};
  }
  return {.right = wins(sums, question.gold), .right_normalised = wins(per_character, question.gold)};
}

Json item_of(const Question& question, const std::vector<tasks::SpanScore>& scores, const Judgement& verdict) {
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

// Returns whether a list such as "arc_challenge, arc_easy or openbook_qa" contains `name`.
bool lists(std::string_view list, std::string_view name) {
  constexpr std::string_view kBetween = ", ";
  const std::size_t at = list.find(name), end = at + name.size();
  return at != std::string_view::npos && (at == 0 || list[at - 1] == ' ') &&
         (end == list.size() || kBetween.find(list[end]) != std::string_view::npos);
}

// Throws UserError if the row belongs to another benchmark.
void check_name(const Benchmark& benchmark, const Question& question) {
  if (!question.of.empty() && !lists(question.of, benchmark.name)) {
    user_error("{}: has the fields of {}, but --task is {}", question.where, question.of, benchmark.name);
  }
  const std::size_t n = question.choices.size();
  if (benchmark.scoring == Scoring::choice && (n < benchmark.fewest || n > benchmark.most)) {
    user_error("{}: has {} choices, but --task is {}, whose questions have {}", question.where, n, benchmark.name,
               benchmark.fewest == benchmark.most ? fmt::format("{}", benchmark.fewest)
                                                  : fmt::format("{} to {}", benchmark.fewest, benchmark.most));
  }
}

void check(const Benchmark& benchmark, const QuestionSets& sets, const std::filesystem::path& data) {
  const auto is_empty = [](const auto& set) { return set.second.empty(); };
  if (sets.empty() || std::ranges::any_of(sets, is_empty)) {
    user_error("{}: holds no questions", data.string());
  }
  for (const auto& [subset, questions] : sets) {
    for (const Question& question : questions) {
      check_name(benchmark, question);
    }
  }
}

BenchmarkData read_questions(const Benchmark& benchmark, const ZeroShotRequest& request) {
  if (request.shots < 0 || (request.shots > 0 && !benchmark.few_shot)) {
    user_error("evaluate: --shots: must be 0 with --task {}, got {}", benchmark.name, request.shots);
  }
  if (request.shots == 0 && !request.shots_from.empty()) {
    user_error("evaluate: --shots-from: needs --shots, the number of examples before each question");
  }
  const auto read = [&](const std::filesystem::path& data) {
    QuestionSets sets = benchmark.read(data::read_documents(data, benchmark.wanted));
    check(benchmark, sets, data);
    return sets;
  };
  BenchmarkData questions{.asked = read(request.data), .solved = {}};
  std::error_code ignored;
  if (!request.shots_from.empty() && !std::filesystem::equivalent(request.data, request.shots_from, ignored)) {
    questions.solved = read(request.shots_from);
  }
  for (const auto& [subset, asked] : questions.asked) {
    if (questions.solved.size() > 1 && !questions.solved.contains(subset)) {
      user_error("evaluate: --shots-from: {} has several files or subsets, but none {}", request.shots_from.string(),
                 subset.empty() ? "for a single file of questions" : fmt::format("named {}", subset));
    }
    const std::int64_t pool = std::ssize(questions.pool_for(subset));
    if (request.shots >= pool + (questions.own() ? 0 : 1)) {
      user_error("evaluate: --shots: must be {} {}, the number of questions in {}, got {}",
                 questions.own() ? "below" : "at most", pool,
                 (questions.own() ? request.data : request.shots_from).string(), request.shots);
    }
  }
  return questions;
}

ZeroShotResult evaluate_questions(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                  const ZeroShotRequest& request) {
  const Benchmark& benchmark = benchmark_named(request.task);
  const BenchmarkData questions = read_questions(benchmark, request);
  const std::vector<tasks::Sequence> sequences = sequences_of(questions, tokenizer, request);
  const tasks::Scores scores = tasks::score(model, sequences, request.options, "evaluate " + request.task);
  ZeroShotResult result{.task = request.task,
                        .shots = request.shots,
                        .shots_from = (questions.own() ? request.data : request.shots_from).string(),
                        .begin = request.prefix.kind,
                        .normalised = benchmark.scoring == Scoring::choice,
                        .perplexity = benchmark.scoring == Scoring::greedy || benchmark.scoring == Scoring::target,
                        .of_tokens = benchmark.scoring == Scoring::target,
                        .truncated = scores.truncated,
                        .texts = std::ssize(sequences),
                        .tokens = scores.tokens,
                        .complete = scores.complete};
  if (request.shots > 0 && questions.own()) {
    log_warning("examples are drawn from the other questions of {}; use --shots-from to draw them from another file",
                request.data.string());
  }
  std::size_t next = 0;
  for (const auto& [subset, asked] : questions.asked) {
    Tally& tally = result.subsets[subset];
    for (const Question& question : asked) {
      std::vector<tasks::SpanScore> choices;
      for (std::size_t i = 0; i < question.choices.size(); ++i) {
        const std::vector<tasks::SpanScore>& spans = scores.spans[next++];
        choices.push_back(spans.empty() ? tasks::SpanScore() : spans.front());
      }
      const Judgement verdict = judge(question, choices, benchmark.scoring);
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

}  // namespace

std::vector<std::string> zero_shot_tasks() {
  std::vector<std::string> names =
      transformed(benchmarks(), [](const Benchmark& benchmark) { return std::string(benchmark.name); });
  names.emplace_back(kComposition);
  return names;
}

void check_zero_shot_task(const std::string& name) {
  if (name != kComposition) {
    benchmark_named(name);
  }
}

ZeroShotResult evaluate_zero_shot(const models::LanguageModel& model, const tokenizers::Tokenizer& tokenizer,
                                  const ZeroShotRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  if (request.by_shots && request.task != kComposition) {
    user_error("evaluate: --by-shots: needs --task {}, whose rows contain solved examples", kComposition);
  }
  ZeroShotResult result = request.task == kComposition ? evaluate_composition(model, tokenizer, request)
                                                       : evaluate_questions(model, tokenizer, request);
  if (result.truncated > 0) {
    log_warning("{} of {} texts are longer than the model's context of {} tokens; they were truncated at the start",
                result.truncated, result.texts, model.options().context_length);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace headroom::zero_shot
