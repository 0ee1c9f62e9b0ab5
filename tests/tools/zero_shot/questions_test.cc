// Multiple-choice rows in the formats of the benchmarks' authors.

#include "tools/zero_shot/questions.h"
#include "folder_test.h"

namespace headroom::zero_shot::questions_test {

struct Case {
  const char* name;
  const char* row;
  std::vector<std::pair<std::string, std::string>> choices;
  std::size_t gold;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"piqa",
       R"({"goal": "boil water", "sol1": "heat it", "sol2": "cool it", "label": 0})",
       {{"Question: boil water\nAnswer:", " heat it"}, {"Question: boil water\nAnswer:", " cool it"}},
       0},
      {"hellaswag",
       R"({"activity_label": "Skiing", "ctx": "[header] How to ski [title] Dress", "endings": ["warmly [step] .", "thin"],
           "label": "1"})",
       {{"Skiing: How to ski. Dress", " warmly ."}, {"Skiing: How to ski. Dress", " thin"}},
       1},
      {"winogrande",
       R"({"sentence": "Ann paid Bea since _ was owed.", "option1": "Ann", "option2": "Bea", "answer": "2"})",
       {{"Ann paid Bea since Ann", " was owed."}, {"Ann paid Bea since Bea", " was owed."}},
       1},
      {"boolq",
       R"({"passage": "Ice floats.", "question": "does ice float", "answer": true})",
       {{"Ice floats.\nQuestion: does ice float?\nAnswer:", " no"},
        {"Ice floats.\nQuestion: does ice float?\nAnswer:", " yes"}},
       1},
      {"sciq",
       R"({"support": "", "question": "q?", "distractor1": "a", "distractor2": "b", "distractor3": "c",
           "correct_answer": "d"})",
       {{"Question: q?\nAnswer:", " a"},
        {"Question: q?\nAnswer:", " b"},
        {"Question: q?\nAnswer:", " c"},
        {"Question: q?\nAnswer:", " d"}},
       3},
      {"arc",
       R"({"question": "q?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"})",
       {{"Question: q?\nAnswer:", " x"}, {"Question: q?\nAnswer:", " y"}},
       1},
      {"openbook_qa",
       R"({"question_stem": "stem", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "A"})",
       {{"Question: stem\nAnswer:", " x"}, {"Question: stem\nAnswer:", " y"}},
       0},
      {"race",
       R"({"article": "t", "question": "q?", "options": ["x", "y", "z"], "answer": "C"})",
       {{"Article: t\n\nQuestion: q?\nAnswer:", " x"},
        {"Article: t\n\nQuestion: q?\nAnswer:", " y"},
        {"Article: t\n\nQuestion: q?\nAnswer:", " z"}},
       2},
      {"copa",
       R"({"premise": "He fell.", "question": "cause", "choice1": "It was icy.", "choice2": "He ate.", "label": 0})",
       {{"He fell because", " it was icy."}, {"He fell because", " he ate."}},
       0},
      {"logiqa",
       R"({"context": "c", "query": "q?", "options": ["x", "y"], "correct_option": 1})",
       {{"Passage: c\nQuestion: q?\nChoices:\nA. x\nB. y\nAnswer:", " x"},
        {"Passage: c\nQuestion: q?\nChoices:\nA. x\nB. y\nAnswer:", " y"}},
       1},
      {"siqa",
       R"({"context": "c.", "question": "q?", "answerA": "x", "answerB": "y", "answerC": "z", "label": "3"})",
       {{"Question: c. q?\nAnswer:", " x"}, {"Question: c. q?\nAnswer:", " y"}, {"Question: c. q?\nAnswer:", " z"}},
       2}};
  return kCases;
}

TEST(Choices, AuthorsFormatsAreRead) {
  for (const Case& each : cases()) {
    const Question question = read_choice(parse_json(each.row, each.name), "f:1");
    ASSERT_EQ(question.choices.size(), each.choices.size()) << each.name;
    for (std::size_t i = 0; i < each.choices.size(); ++i) {
      EXPECT_EQ(question.choices[i].context, each.choices[i].first) << each.name;
      EXPECT_EQ(question.choices[i].continuation, each.choices[i].second) << each.name;
    }
    EXPECT_EQ(question.gold, each.gold) << each.name;
    EXPECT_EQ(question.where, "f:1");
  }
}

TEST(Choices, BracketedMarksAreRemoved) {
  const auto cleaned = [](const std::string& ctx) {
    return read_choice({{"ctx", ctx}, {"endings", {"a", "b"}}, {"label", 0}}, "f:1").choices[0].context;
  };
  EXPECT_EQ(cleaned("One  two   three"), "One two three");
  EXPECT_EQ(cleaned("Go[title]On [title] [step] [substeps] end"), "Go. On. end");
  EXPECT_EQ(cleaned("a [b [c] d] e"), "a d] e");
  EXPECT_EQ(cleaned("a [b\nc] d"), "a [b\nc] d") << "a mark ends on its line";
  EXPECT_EQ(cleaned("a ] b [ c"), "a ] b [ c");
  const std::string many(1'000'000, '[');
  EXPECT_EQ(cleaned(many), many);
  EXPECT_EQ(cleaned(many + "]x"), "x");
  EXPECT_EQ(cleaned("x" + std::string(1'000'000, ' ') + "y"), "x y");
}

TEST(Choices, InvalidFieldsAreNamed) {
  const std::vector<std::tuple<const char*, const char*, const char*>> rows = {
      {R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})", "\"label\"", "0 to 1, got 2"},
      {R"({"goal": "g", "sol1": "a", "sol2": "b", "label": ""})", "\"label\"", "0 to 1, got \"\""},
      {R"({"sentence": "no gap", "option1": "a", "option2": "b", "answer": "1"})", "\"sentence\"", "_"},
      {R"({"passage": "p", "question": "q", "answer": "yes"})", "\"answer\"", "got \"yes\""},
      {R"({"question": "q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "C"})", "\"answerKey\"",
       "A to B, got \"C\""},
      {R"({"question": "q", "choices": {"text": ["x", "y"], "label": ["A", "B", "C"]}, "answerKey": "A"})",
       "\"choices\"", "got 3"},
      {R"({"something": "else"})", "\"query\"", ""}};
  for (const auto& [row, field, found] : rows) {
    const std::string text = user_error_of([&] { read_choice(parse_json(row, "row"), "f:7"); });
    EXPECT_EQ(text.find("f:7: "), 0U) << text;
    EXPECT_NE(text.find(field), std::string::npos) << text;
    EXPECT_NE(text.find(found), std::string::npos) << text;
  }
}

}  // namespace headroom::zero_shot::questions_test
