// Multiple-choice rows in the formats of the benchmarks' authors.

#include "tools/zero_shot/questions.h"
#include "folder_test.h"

namespace headroom::zero_shot::questions_test {

// Expects a row to ask for these continuations of a context.
void expect_question(const std::string& row, const std::string& context, const std::vector<std::string>& continuations,
                     std::size_t gold) {
  const Question question = read_choice(parse_json(row, "row"), "f:1");
  ASSERT_EQ(question.choices.size(), continuations.size()) << row;
  for (std::size_t i = 0; i < continuations.size(); ++i) {
    EXPECT_EQ(question.choices[i].context, context) << row;
    EXPECT_EQ(question.choices[i].continuation, continuations[i]) << row;
  }
  EXPECT_EQ(question.gold, gold) << row;
  EXPECT_EQ(question.where, "f:1");
}

TEST(Choices, AuthorsFormatsAreRead) {
  expect_question(R"({"goal": "boil water", "sol1": "heat it", "sol2": "cool it", "label": 0})",
                  "Question: boil water\nAnswer:", {" heat it", " cool it"}, 0);
  expect_question(R"({"activity_label": "Skiing", "ctx": "[header] How to ski [title] Dress", "ctx_b": "",
                      "endings": ["warmly [step] .", "thin"], "label": "1"})",
                  "Skiing: How to ski. Dress", {" warmly .", " thin"}, 1);
  expect_question(R"({"ctx": "A man skis. the Man", "ctx_a": "A man skis.", "ctx_b": "the Man",
                      "endings": ["[step] falls ", "x"], "label": "1"})",
                  "A man skis. The man", {"  falls", " x"}, 1);
  expect_question(R"({"passage": "Ice floats.", "question": "does ice float", "answer": true})",
                  "Ice floats.\nQuestion: does ice float?\nAnswer:", {" no", " yes"}, 1);
  expect_question(R"({"support": "", "question": "q?", "distractor1": "a", "distractor2": "b", "distractor3": "c",
                      "correct_answer": "d"})",
                  "\nQuestion: q?\nAnswer:", {" a", " b", " c", " d"}, 3);
  expect_question(R"({"question": "q?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"})",
                  "Question: q?\nAnswer:", {" x", " y"}, 1);
  expect_question(
      R"({"question_stem": "stem", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "A"})", "stem",
      {" x", " y"}, 0);
  expect_question(R"({"question": "q?", "question_concept": "c", "choices": {"text": ["x", "y"], "label": ["A", "B"]},
                      "answerKey": "B"})",
                  "Question: q?\nA. x\nB. y\nAnswer:", {" A", " B"}, 1);
  expect_question(R"({"article": "t", "question": "q?", "options": ["x", "y", "z"], "answer": "C"})",
                  "Article: t\n\nQuestion: q?\nAnswer:", {" x", " y", " z"}, 2);
  expect_question(
      R"({"premise": "He fell.", "question": "cause", "choice1": "It was icy.", "choice2": "He ate.", "label": 0})",
      "He fell because", {" it was icy.", " he ate."}, 0);
  expect_question(R"({"context": "c", "query": "q?", "options": ["x", "y"], "correct_option": 1})",
                  "Passage: c\nQuestion: q?\nChoices:\nA. x\nB. y\nAnswer:", {" x", " y"}, 1);
  expect_question(
      R"({"context": "c.", "question": "q?", "answerA": "x", "answerB": "y", "answerC": "z", "label": "3"})",
      "Q: c. q?\nA:", {" x", " y", " z"}, 2);
  const Question gap =
      read_choice({{"sentence", "Since _ was owed."}, {"option1", "Ann"}, {"option2", "Bea"}, {"answer", "2"}}, "f:1");
  EXPECT_EQ(gap.choices[0].context, "Since Ann");
  EXPECT_EQ(gap.choices[1].context, "Since Bea");
  EXPECT_EQ(gap.choices[0].continuation, " was owed.");
  EXPECT_EQ(gap.gold, 1U);
}

TEST(Choices, BracketedMarksAreRemoved) {
  const auto cleaned = [](const std::string& ctx) {
    return read_choice({{"ctx", ctx}, {"endings", {"a", "b"}}, {"label", 0}}, "f:1").choices[0].context;
  };
  EXPECT_EQ(cleaned("One  two   three"), "One two  three") << "as lm_eval does";
  EXPECT_EQ(cleaned("Go[title] on [title] [step] [substeps] end"), "Go on.  end");
  EXPECT_EQ(cleaned("a [b [c] d] e"), "a d] e");
  EXPECT_EQ(cleaned("a [b\nc] d"), "a [b\nc] d") << "a mark ends on its line";
  EXPECT_EQ(cleaned("a ] b [ c"), "a ] b [ c");
  const std::string many(1'000'000, '[');
  EXPECT_EQ(cleaned(many), many);
  EXPECT_EQ(cleaned(many + "]x"), "x");
  EXPECT_EQ(cleaned("x" + std::string(1'000'000, ' ') + "y"), "x" + std::string(500'000, ' ') + "y");
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
