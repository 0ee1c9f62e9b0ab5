// The questions of tests without training, and their files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/documents.h"

namespace headroom::tasks::zero_shot {

struct Choice {
  std::string context, continuation;  // the latter is scored, with the blank that it begins with
};

struct Question {
  std::vector<Choice> choices;
  std::size_t gold = 0;
  std::string where;    // "file:line"
  std::string_view of;  // the tests whose rows have such fields: "piqa", "winograd or winogrande"; empty: any's
};

using QuestionSets = std::map<std::string, std::vector<Question>>;  // by subset; "" where there are none

// How a test's answers are judged.
enum class Measure { greedy, sum, per_token, choice, target };

struct Test {
  std::string_view name;
  Measure measure;
  bool takes_shots;
  bool (*wanted)(std::string_view file_name);
  QuestionSets (*read)(const std::vector<data::Document>& documents);
  std::size_t fewest = 1, most = 1000;  // choices of a question
};

const std::vector<Test>& tests();

}  // namespace headroom::tasks::zero_shot
