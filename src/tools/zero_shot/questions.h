// Zero-shot benchmark questions, and the readers of their files.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/documents.h"
#include "headroom/core/json.h"

namespace headroom::zero_shot {

inline constexpr std::string_view kBlanks = " \t\r\n";

struct AnswerChoice {
  // the continuation is scored; it includes the blank that separates it from the context
  std::string context, continuation;
};

struct Question {
  std::vector<AnswerChoice> choices;
  std::size_t gold = 0;  // index of the right choice
  std::string where;     // "file:line"
  std::string_view of;   // benchmarks that use this row format: "piqa", "winograd or winogrande"; empty: unknown
};

using QuestionSets = std::map<std::string, std::vector<Question>>;  // by subset; key "" if there are no subsets

// How answers are scored; see zero_shot.h.
enum class Scoring { greedy, sum, per_token, choice, target };

struct Benchmark {
  std::string_view name;
  Scoring scoring;
  bool few_shot;  // whether --shots applies
  bool (*wanted)(std::string_view file_name);
  QuestionSets (*read)(const std::vector<data::Document>& documents);
  std::size_t fewest = 1, most = 1000;  // range of choices per question
};

const std::vector<Benchmark>& benchmarks();

// Reads a multiple-choice question in the format of evaluation suites or of the benchmark's authors, which is detected
// from the row's fields. `where` is "file:line". Throws UserError if a field is missing or invalid.
Question read_choice(const Json& row, const std::string& where);

// Calls use(row, "file:line") for each non-empty line. Throws UserError if a line is not a JSON object.
void for_each_row(const data::Document& document, const std::function<void(const Json&, const std::string&)>& use);

// Returns a field of a row. Throws UserError starting with `where` if it is missing; text_in() also throws if it is not
// a string or is blank.
const Json& value_in(const Json& row, const char* key, const std::string& where);
std::string text_in(const Json& row, const char* key, const std::string& where);

}  // namespace headroom::zero_shot
