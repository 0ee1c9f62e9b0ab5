#include "questions.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "data/text/text.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"

namespace headroom::zero_shot {
namespace {

using data::Document;

// LAMBADA: the answer is the text after the last blank, including any other white space in it.
Question passage(std::string_view text, std::string where) {
  text.remove_suffix(text.size() - text.find_last_not_of(kBlanks) - 1);
  const std::size_t blank = text.rfind(' ');
  if (blank == std::string_view::npos || trimmed(text.substr(0, blank)).empty()) {
    user_error("{}: must be a text of several words, got \"{}\"", where, trimmed(text));
  }
  return {.choices = {{std::string(text.substr(0, blank)), std::string(text.substr(blank))}},
          .where = std::move(where)};
}

// With several files, each is a subset named after the file.
std::string subset_of(const Document& document, const std::vector<Document>& documents) {
  return documents.size() == 1 ? "" : document.stem;
}

QuestionSets read_lambada(const std::vector<Document>& documents) {
  QuestionSets sets;
  for (const Document& document : documents) {
    std::vector<Question>& questions = sets[subset_of(document, documents)];
    if (trimmed(document.text).starts_with('{')) {
      for_each_row(document, [&](const Json& row, const std::string& where) {
        questions.push_back(passage(text_in(row, "text", where), where));
      });
      continue;
    }
    data::for_each_line(document.text, [&](std::string_view line, std::int64_t number) {
      if (!trimmed(line).empty()) {
        questions.push_back(passage(line, fmt::format("{}:{}", document.name, number)));
      }
    });
  }
  return sets;
}

QuestionSets read_blimp(const std::vector<Document>& documents) {
  QuestionSets sets;
  for (const Document& document : documents) {
    for_each_row(document, [&](const Json& row, const std::string& where) {
      const std::string name = row.contains("UID") ? printable(text_in(row, "UID", where)) : document.stem;
      Question question{.where = where};
      for (const char* key : {"sentence_good", "sentence_bad"}) {
        question.choices.push_back({"", text_in(row, key, where)});
      }
      sets[name].push_back(std::move(question));
    });
  }
  return sets;
}

// The Children's Book Test: 20 numbered lines, then "21 <question with XXXXX>\t<answer>\t\t<candidate>|<candidate>...".
class CbtStory {
 public:
  // Returns the question after the last line of a story.
  std::optional<Question> add(std::string_view line, const std::string& where) {
    const std::size_t blank = line.find(' ');
    const std::string number = fmt::format("{}", ++lines_);
    if (blank == std::string_view::npos || line.substr(0, blank) != number) {
      user_error("{}: must begin with the line number {} and a blank", where, number);
    }
    line.remove_prefix(blank + 1);
    constexpr int kQuestion = 21;
    if (lines_ < kQuestion) {
      text_ += fmt::format("{}{}", text_.empty() ? "" : " ", trimmed(line));
      return std::nullopt;
    }
    Question asked = question(line, where);
    text_.clear();
    lines_ = 0;
    return asked;
  }
  bool is_open() const { return lines_ > 0; }

 private:
  Question question(std::string_view line, const std::string& where) const {
    constexpr std::string_view kPlace = "XXXXX";
    constexpr std::size_t kCandidates = 10;
    std::vector<std::string_view> fields;
    for (const auto field : std::views::split(line, '\t')) {
      fields.emplace_back(field.begin(), field.end());
    }
    const std::string_view sentence = trimmed(fields.front());
    const std::size_t place = sentence.find(kPlace);
    if (fields.size() != 4 || place == std::string_view::npos) {
      user_error(
          "{}: must have four fields separated by tabs: a sentence with {}, the answer, an empty field, and the "
          "candidates",
          where, kPlace);
    }
    const std::string_view answer = trimmed(fields[1]);
    Question asked{.where = where};
    const std::string context = fmt::format("{} {}", text_, sentence.substr(0, place));
    std::set<std::string_view> seen;
    std::optional<std::size_t> gold;
    for (std::string_view rest = trimmed(fields[3]); !rest.empty();) {
      const std::size_t bar = std::min(rest.find('|'), rest.size());
      const std::string_view candidate = rest.substr(0, bar);
      rest.remove_prefix(std::min(bar + 1, rest.size()));
      if (candidate == answer) {
        gold = asked.choices.size();
      }
      if (trimmed(candidate).empty()) {
        user_error("{}: candidate {} is empty", where, asked.choices.size() + 1);
      }
      seen.insert(candidate);
      asked.choices.push_back(
          {std::string(trimmed(context)), fmt::format(" {}{}", candidate, sentence.substr(place + kPlace.size()))});
    }
    if (asked.choices.size() != kCandidates || seen.size() != kCandidates || !gold) {
      user_error("{}: must have {} different candidates, including the answer \"{}\", got {}", where, kCandidates,
                 answer, fields[3]);
    }
    asked.gold = *gold;
    return asked;
  }

  std::string text_;
  int lines_ = 0;
};

QuestionSets read_cbt(const std::vector<Document>& documents) {
  const auto is_test = [](const Document& document) { return document.stem.find("_test_") != std::string::npos; };
  const bool any_test = std::ranges::any_of(documents, is_test);
  QuestionSets sets;
  for (const Document& document : documents) {
    if (any_test && !is_test(document)) {
      continue;  // training and validation splits
    }
    std::vector<Question>& questions = sets[document.stem];
    CbtStory story;
    data::for_each_line(document.text, [&](std::string_view line, std::int64_t number) {
      if (trimmed(line).empty() && !story.is_open()) {
        return;
      }
      if (auto question = story.add(line, fmt::format("{}:{}", document.name, number))) {
        questions.push_back(std::move(*question));
      }
    });
    if (story.is_open()) {
      user_error("{}: the last story is incomplete", document.name);
    }
  }
  return sets;
}

QuestionSets read_choices(const std::vector<Document>& documents) {
  QuestionSets sets;
  for (const Document& document : documents) {
    std::vector<Question>& questions = sets[subset_of(document, documents)];
    for_each_row(document,
                 [&](const Json& row, const std::string& where) { questions.push_back(read_choice(row, where)); });
  }
  return sets;
}

// Reads pairs of input and target, under the field names that are common in instruction data.
QuestionSets read_targets(const std::vector<Document>& documents) {
  constexpr std::string_view kInstruction = "instruction";  // may have an "input", the text to which it applies
  constexpr std::pair<const char*, const char*> kFields[] = {
      {"inputs", "targets"}, {"input", "target"}, {"prompt", "completion"}, {kInstruction.data(), "output"}};
  QuestionSets sets;
  for (const Document& document : documents) {
    std::vector<Question>& questions = sets[subset_of(document, documents)];
    for_each_row(document, [&](const Json& row, const std::string& where) {
      const auto* const fields = std::ranges::find_if(
          kFields, [&](const auto& names) { return row.contains(names.first) && row.contains(names.second); });
      if (fields == std::end(kFields)) {
        user_error(
            "{}: must have the fields \"inputs\" and \"targets\" (or input, target; prompt, completion; instruction, "
            "output)",
            where);
      }
      std::string input = text_in(row, fields->first, where);
      if (fields->first == kInstruction && row.contains("input") && row["input"] != "") {
        input += "\n" + text_in(row, "input", where);
      }
      const std::string target = text_in(row, fields->second, where);
      const auto is_blank = [](char c) { return kBlanks.find(c) != std::string_view::npos; };
      const bool separated = is_blank(input.back()) || is_blank(target.front());
      questions.push_back({.choices = {{input, (separated ? "" : " ") + target}}, .where = where});
    });
  }
  return sets;
}

bool is_json(std::string_view name) {
  return data::is_json_lines(name);
}
bool is_text(std::string_view name) {
  return is_json(name) || data::file_ending(name) == ".txt";
}

}  // namespace

void for_each_row(const data::Document& document, const std::function<void(const Json&, const std::string&)>& use) {
  data::for_each_line(document.text, [&](std::string_view line, std::int64_t number) {
    if (trimmed(line).empty()) {
      return;
    }
    const std::string where = fmt::format("{}:{}", document.name, number);
    use(parse_json_line(line, where), where);
  });
}

const Json& value_in(const Json& row, const char* key, const std::string& where) {
  const auto found = row.find(key);
  if (found == row.end()) {
    user_error("{}: has no field \"{}\"", where, key);
  }
  return *found;
}

std::string text_in(const Json& row, const char* key, const std::string& where) {
  const Json& found = value_in(row, key, where);
  if (!found.is_string() || trimmed(found.get_ref<const std::string&>()).empty()) {
    user_error("{}: field \"{}\" must be a text, got {}", where, key,
               found.is_string() ? "an empty one" : std::string(found.type_name()));
  }
  return found.get<std::string>();
}

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> kBenchmarks = [] {
    std::vector<Benchmark> all = {{"lambada", Scoring::greedy, true, is_text, read_lambada},
                                  {"blimp", Scoring::sum, false, is_json, read_blimp},
                                  {"cbt", Scoring::per_token, false, is_text, read_cbt},
                                  {"target_loss", Scoring::target, true, is_json, read_targets}};
    for (const char* name : {"boolq", "copa", "piqa", "winograd", "winogrande"}) {
      all.push_back({name, Scoring::choice, true, is_json, read_choices, 2, 2});
    }
    for (const char* name :
         {"arc_challenge", "arc_easy", "commonsense_qa", "hellaswag", "logiqa", "openbook_qa", "race", "sciq"}) {
      all.push_back({name, Scoring::choice, true, is_json, read_choices, 3, 5});
    }
    all.push_back({"siqa", Scoring::choice, true, is_json, read_choices, 2, 3});
    return all;
  }();
  return kBenchmarks;
}

}  // namespace headroom::zero_shot
