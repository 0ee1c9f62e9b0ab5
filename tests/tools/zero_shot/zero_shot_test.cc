#include "tools/zero_shot/zero_shot.h"

#include <cmath>

#include "folder_test.h"
#include "training/tasks/byte_scores.h"

namespace headroom::zero_shot::zero_shot_test {

using namespace tasks::byte_scores;

class ZeroShot : public testing::Test {
 protected:
  ZeroShotResult run(const std::string& task, const std::string& name, const std::string& content,
                     std::int64_t shots = 0, std::int64_t batch_size = 4) const {
    write_text_file(folder_ / name, content);
    return evaluate_zero_shot(
        model_, *tokenizer_,
        {.task = task, .data = folder_ / name, .shots = shots, .options = {.batch_size = batch_size}});
  }
  std::string refusal(const std::string& task, const std::string& name, const std::string& content,
                      std::int64_t shots = 0) const {
    return user_error_of([&] { run(task, name, content, shots); });
  }
  double sum(const std::string& context, const std::string& answer) const {
    return by_definition(model_, context, answer).log_probability;
  }

  tiny::Folder folder_;
  models::LanguageModel model_{model_options(8), 5};  // with memory: nothing is truncated
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_ = tiny::bytes_tokenizer();
};

TEST_F(ZeroShot, BlimpComparesSums) {
  std::string rows;
  int right = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::string good = tiny::text(12 + i % 3, 2 * i).substr(0, 11), bad = tiny::text(12, 2 * i + 1).substr(0, 11);
    right += sum("", good) > sum("", bad);
    Json row = {{"sentence_good", good}, {"sentence_bad", bad}, {"UID", i < 5 ? "first" : "second"}};
    rows += to_json_line(row) + "\n";
  }
  const ZeroShotResult result = run("blimp", "blimp.jsonl", rows);
  ASSERT_EQ(result.subsets.size(), 2U);
  EXPECT_EQ(result.subsets.at("first").questions, 5);
  EXPECT_EQ(result.subsets.at("first").right + result.subsets.at("second").right, right);
  EXPECT_GT(right, 0);
  EXPECT_LT(right, 20);
  const double mean = (result.subsets.at("first").accuracy() + result.subsets.at("second").accuracy()) / 2;
  const Json json = to_json(result);
  EXPECT_DOUBLE_EQ(json["accuracy"].get<double>(), mean) << "mean over subsets, not over sentences";
  EXPECT_DOUBLE_EQ(json["results"]["blimp"]["acc,none"].get<double>(), mean);
  EXPECT_EQ(json["results"]["blimp_first"]["acc,none"], json["subsets"]["first"]);
  EXPECT_EQ(json["group_subtasks"]["blimp"].size(), 2U);
  EXPECT_EQ(json["n-samples"]["blimp_second"]["effective"], 15);
  EXPECT_EQ(to_json(run("blimp", "blimp.jsonl", rows, 0, 1))["subsets"], json["subsets"]);
  // A tie counts as wrong.
  EXPECT_EQ(run("blimp", "t.jsonl", R"({"sentence_good": "x", "sentence_bad": "x"})").subsets.at("t").right, 0);
}

TEST_F(ZeroShot, LambadaIsGreedy) {
  const ZeroShotResult plain = run("lambada", "plain.txt", "every token rests\n\nthe head room\n");
  const ZeroShotResult marked = run("lambada", "marked.TXT",
                                    "\xef\xbb\xbf"
                                    "every token rests\n\nthe head room\n");
  EXPECT_EQ(to_json(marked)["results"], to_json(plain)["results"]) << "a byte order mark is no text";
  const ZeroShotResult json =
      run("lambada", "a.jsonl", "{\"text\": \"every token rests\"}\n{\"text\": \"the head room\"}\n");
  EXPECT_EQ(to_json(plain)["results"], to_json(json)["results"]);
  const Tally& tally = plain.subsets.at("");
  EXPECT_EQ(tally.questions, 2);
  EXPECT_EQ(tally.right, by_definition(model_, "every token", " rests").likeliest +
                             by_definition(model_, "the head", " room").likeliest);
  EXPECT_NEAR(tally.log_probability, sum("every token", " rests") + sum("the head", " room"), 1e-4);
  EXPECT_NEAR(to_json(plain)["results"]["lambada"]["perplexity,none"].get<double>(),
              std::exp(-tally.log_probability / 2), 1e-9);
  EXPECT_HAS(refusal("lambada", "one.txt", "word\n"), "one.txt:1: must be a text of several words");
}

TEST_F(ZeroShot, RefusesTheRowsOfAnotherTest) {
  const std::string four = R"({"query": "q", "choices": ["a", "b", "c", "d"], "gold": 1})";
  EXPECT_HAS(refusal("piqa", "arc_easy.jsonl", four),
             "arc_easy.jsonl:1: has 4 choices, but --task is piqa, whose questions have 2");
  EXPECT_HAS(refusal("arc_easy", "piqa.jsonl", R"({"query": "q", "choices": ["a", "b"], "gold": 1})"),
             "has 2 choices, but --task is arc_easy, whose questions have 3 to 5");
  const std::string physics = R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 1})";
  EXPECT_HAS(refusal("copa", "p.jsonl", physics), "p.jsonl:1: has the fields of piqa, but --task is copa");
  EXPECT_EQ(run("piqa", "p.jsonl", physics).whole().questions, 1);
  const std::string gap = R"({"context_options": ["x", "y"], "continuation": "z", "gold": 0})";
  EXPECT_EQ(run("winograd", "w.jsonl", gap).whole().questions, 1);
  EXPECT_EQ(run("winogrande", "w.jsonl", gap).whole().questions, 1);
  EXPECT_HAS(refusal("copa", "w.jsonl", gap), "has the fields of winograd or winogrande");
  const std::string labels =
      R"({"question": "q?", "choices": {"text": ["x", "y", "z"], "label": ["A", "B", "C"]}, "answerKey": "B"})";
  for (const char* task : {"arc_easy", "arc_challenge", "commonsense_qa", "openbook_qa"}) {
    EXPECT_EQ(run(task, "l.jsonl", labels).whole().questions, 1) << task;
  }
  EXPECT_HAS(refusal("race", "l.jsonl", labels), "has the fields of arc_challenge, arc_easy, commonsense_qa or");
}

TEST_F(ZeroShot, MultipleChoiceRawAndPerCharacter) {
  const std::string rows =
      "{\"query\": \"Question: who rests?\", \"choices\": [\"h\u00e9\u00e9\u00e9d\", \"the room\", \"token\"], "
      "\"gold\": 1}\n"
      "{\"query\": \"the head\", \"choices\": [\"attends.\", \"rests.\"], \"gold\": 0}\n"
      "{\"query\": \"every token\", \"choices\": [\"rests\", \"attends twice\"], \"gold\": 0}\n";
  const std::string beginnings =
      "{\"context_options\": [\"the head\", \"the room\"], \"continuation\": \"attends.\", \"gold\": 0}\n";
  const std::vector<std::vector<std::pair<std::string, std::string>>> texts = {
      {{"Question: who rests?\nAnswer:", " h\u00e9\u00e9\u00e9d"},
       {"Question: who rests?\nAnswer:", " the room"},
       {"Question: who rests?\nAnswer:", " token"}},
      {{"the head", " attends."}, {"the head", " rests."}},
      {{"every token", " rests"}, {"every token", " attends twice"}},
      {{"the head", " attends."}, {"the room", " attends."}}};
  int raw = 0, normalised = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::vector<double> sums, characters;
    for (const auto& [context, answer] : texts[i]) {
      const std::size_t twice = answer.find("\u00e9") == std::string::npos ? 0 : 3;  // bytes beyond one per character
      sums.push_back(sum(context, answer));
      characters.push_back(sums.back() / static_cast<double>(answer.size() - 1 - twice));
    }
    const auto gold = i == 0 ? 1 : 0;
    raw += std::max_element(sums.begin(), sums.end()) - sums.begin() == gold;
    normalised += std::max_element(characters.begin(), characters.end()) - characters.begin() == gold;
  }
  const ZeroShotResult result = run("siqa", "siqa.jsonl", rows);
  Tally both = result.whole();
  both += run("winograd", "winograd.jsonl", beginnings).whole();
  EXPECT_EQ(both.right, raw);
  EXPECT_EQ(both.right_normalised, normalised);
  const Json json = to_json(result);
  EXPECT_TRUE(json["subsets"].empty());
  EXPECT_EQ(json["n-shot"]["siqa"], 0);
  EXPECT_EQ(json["results"]["siqa"]["acc_norm,none"], json["accuracy_normalised"]);
  // Examples add tokens.
  const ZeroShotResult shots = run("siqa", "siqa.jsonl", rows, 2);
  EXPECT_GT(shots.tokens, 2 * result.tokens);
  EXPECT_HAS(refusal("siqa", "siqa.jsonl", rows, 3), "--shots: must be below 3");
  EXPECT_HAS(refusal("blimp", "b.jsonl", R"({"sentence_good": "x", "sentence_bad": "y", "UID": 7})"),
             "b.jsonl:1: field \"UID\" must be a text, got number");
  EXPECT_HAS(refusal("blimp", "b.jsonl", R"({"sentence_good": "x", "sentence_bad": "y"})", 1), "must be 0");
}

std::string story(const std::string& last) {
  std::string text;
  for (int line = 1; line <= 20; ++line) {
    text += fmt::format("{} the head attends .\n", line);
  }
  return text + "21 " + last + "\n\n";
}

TEST_F(ZeroShot, CbtComparesMeansOfAnswerAndRest) {
  const std::string candidates = "a|b|c|d|eee|f|g|h|room|j";
  const std::string text =
      story("the XXXXX rests .\troom\t\t" + candidates) + story("XXXXX rests .\tj\t\t" + candidates);
  std::string before;
  for (int line = 0; line < 20; ++line) {
    before += (line == 0 ? "the head attends ." : " the head attends .");
  }
  int right = 0;
  for (const auto& [context, gold] : {std::pair(before + " the", "room"), std::pair(before, "j")}) {
    double best = -1e9;
    std::string winner;
    for (const char* word : {"a", "b", "c", "d", "eee", "f", "g", "h", "room", "j"}) {
      const tasks::SpanScore score = by_definition(model_, context, fmt::format(" {} rests .", word));
      if (score.log_probability / static_cast<double>(score.tokens) > best) {
        best = score.log_probability / static_cast<double>(score.tokens);
        winner = word;
      }
    }
    right += winner == gold;
  }
  EXPECT_EQ(run("cbt", "cbtest_NE_test_2500ex.txt", text).subsets.at("cbtest_NE_test_2500ex").right, right);
  EXPECT_HAS(refusal("cbt", "c.txt", story("the XXXXX .\tnobody\t\t" + candidates)),
             "c.txt:21: must have 10 different");
  EXPECT_HAS(refusal("cbt", "c.txt", story("no place .\troom\t\t" + candidates)), "c.txt:21: must have four fields");
  EXPECT_HAS(refusal("cbt", "c.txt", story("the XXXXX .\tb\t\ta|b|c|d|e|f|g|h| |j")), "c.txt:21: candidate 9 is empty");
  EXPECT_HAS(refusal("cbt", "c.txt", "1 a\n3 b\n"), "c.txt:2: must begin with the line number 2");
  EXPECT_HAS(refusal("cbt", "c.txt", "1 a\n2 b\n"), "story is incomplete");
}

TEST_F(ZeroShot, LambadaAsksForWhatFollowsTheLastBlank) {
  write_text_file(folder_ / "l.jsonl", "{\"text\": \" the  head\\u00a0room\"}\n{\"text\": \"a  b\\tc \"}\n");
  const ZeroShotResult result = evaluate_zero_shot(
      model_, *tokenizer_, {.task = "lambada", .data = folder_ / "l.jsonl", .items = true, .options = {}});
  ASSERT_EQ(result.items.size(), 2U);
  const auto choice = [&](std::size_t item) { return result.items[item]["choices"][0]; };
  EXPECT_EQ(choice(0)["context"], " the ");
  EXPECT_EQ(choice(0)["continuation"], " head\u00a0room");
  EXPECT_NEAR(choice(0)["log_probability"].get<double>(), sum(" the", "  head\u00a0room"), 1e-4);
  EXPECT_EQ(choice(0)["tokens"], 12);
  EXPECT_EQ(choice(1)["continuation"], " b\tc");
}

TEST_F(ZeroShot, ItemsAgreeWithTheFigures) {
  const std::string rows = R"({"query": "every token", "choices": ["rests", "attends twice"], "gold": 0})"
                           "\n"
                           R"({"query": "the head", "choices": ["room", "rests at"], "gold": 1})"
                           "\n";
  write_text_file(folder_ / "copa.jsonl", rows);
  const ZeroShotResult result = evaluate_zero_shot(
      model_, *tokenizer_, {.task = "copa", .data = folder_ / "copa.jsonl", .items = true, .options = {}});
  ASSERT_EQ(result.items.size(), 2U);
  std::int64_t right = 0;
  for (const Json& item : result.items) {
    const auto score = [&](std::size_t i) { return item["choices"][i]["log_probability"].get<double>(); };
    const auto gold = item["gold"].get<std::size_t>();
    EXPECT_EQ(item["right"], score(gold) > score(1 - gold));
    right += item["right"].get<bool>() ? 1 : 0;
    EXPECT_EQ(item["subset"], "");
    EXPECT_EQ(item["choices"][0]["tokens"].get<std::size_t>(),
              item["choices"][0]["continuation"].get<std::string>().size());
  }
  EXPECT_EQ(right, result.subsets.at("").right);
  EXPECT_TRUE(result.items[1]["question"].get<std::string>().ends_with("copa.jsonl:2"));
  EXPECT_NEAR(result.items[0]["choices"][1]["log_probability"].get<double>(), sum("every token", " attends twice"),
              1e-4);
}

TEST_F(ZeroShot, ExamplesComeFromASeparateFile) {
  const auto row = [](const std::string& query) {
    return fmt::format(R"({{"query": "{}", "choices": ["rests", "room"], "gold": 1}})", query) + "\n";
  };
  write_text_file(folder_ / "asked.jsonl", row("the head") + row("every token"));
  write_text_file(folder_ / "solved.jsonl", row("solved"));
  ZeroShotRequest request{.task = "copa", .data = folder_ / "asked.jsonl", .shots = 1, .options = {}};
  const ZeroShotResult own = evaluate_zero_shot(model_, *tokenizer_, request);
  EXPECT_EQ(to_json(own)["shots_from"], (folder_ / "asked.jsonl").string());
  request.shots_from = folder_ / "solved.jsonl";
  const ZeroShotResult other = evaluate_zero_shot(model_, *tokenizer_, request);
  EXPECT_EQ(to_json(other)["shots_from"], (folder_ / "solved.jsonl").string());
  EXPECT_HAS(to_text(other), "1 shots from");
  const std::string before = "solved room\n\n";
  EXPECT_NEAR(other.subsets.at("").log_probability,
              sum(before + "the head", " room") + sum(before + "every token", " room"), 1e-4);
  request.shots = 2;
  EXPECT_THROW(evaluate_zero_shot(model_, *tokenizer_, request), UserError);
  request.shots = 0;
  EXPECT_THROW(evaluate_zero_shot(model_, *tokenizer_, request), UserError);
}

TEST_F(ZeroShot, BadRowsAreNamed) {
  const auto piqa = [&](const std::string& row) {
    return refusal("piqa", "p.jsonl", "{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": 0}\n" + row + "\n");
  };
  EXPECT_HAS(piqa("{\"query\": \"q\"}"), "p.jsonl:2: has no field \"choices\"");
  EXPECT_HAS(piqa("{\"query\": 3}"), "p.jsonl:2: field \"query\" must be a text, got number");
  EXPECT_HAS(piqa("[1]"), "p.jsonl:2: expected one JSON object a line, got array");
  EXPECT_HAS(piqa("{\"query\""), "p.jsonl:2: expected one JSON object a line, got the");
  EXPECT_HAS(piqa("{\"query\": \"q\", \"choices\": [\"a\"], \"gold\": 0}"), "at least two texts");
  EXPECT_HAS(piqa("{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"gold\": -1}"), "0 to 1, got -1");
  EXPECT_HAS(refusal("blim", "b.jsonl", "{}"), "did you mean blimp?");
  EXPECT_HAS(refusal("piqa", "e.jsonl", "\n"), "holds no questions");
  // JSON after blank characters is not read as a passage of text.
  EXPECT_HAS(refusal("lambada", "l.txt", "\n {\"words\": \"a head\"}\n"), "has no field \"text\"");
  EXPECT_HAS(
      refusal("copa", "c.jsonl",
              "{\"premise\": \"p\", \"choice1\": \"a\", \"choice2\": \"b\", \"question\": \"why\", \"label\": 0}"),
      "must be \"cause\" or \"effect\", got \"why\"");
}

TEST_F(ZeroShot, CompositionScoresTheAnswers) {
  const std::string text = "\\n< a b >. who? cd\\n< e f >. who? [ gh ]\\n< i j >. who? [ kl ]\\n";
  const std::string rows =
      "{\"task_id\": \"task6\", \"texts\": \"" + text + "\"}\n{\"task_id\": \"task57\", \"texts\": \"x [ y ]\"}\n";
  const std::string before = "\n< a b >. who? cd\n< e f >. who?";
  const double gh = sum(before, " gh"), kl = sum(before + " gh\n< i j >. who?", " kl"), y = sum("x", " y");
  const ZeroShotResult result = run("composition", "c.jsonl", rows);
  EXPECT_EQ(result.texts, 2) << "a row is one sequence";
  ASSERT_EQ(result.subsets.size(), 2U);
  const Tally& who = result.subsets.at("object_superclass/who");
  EXPECT_EQ(who.questions, 2);
  EXPECT_NEAR(who.log_probability, gh + kl, 1e-4);
  EXPECT_NEAR(result.subsets.at("odd_object_copy/which_different").log_probability, y, 1e-4);
  const Json json = to_json(result);
  EXPECT_NEAR(std::log(json["perplexity"].get<double>()), -(gh + kl + y) / 3, 1e-4);
  EXPECT_EQ(json["blocks"]["object_superclass"]["answers"], 2);
  EXPECT_NEAR(std::log(json["patterns"]["who"]["perplexity"].get<double>()), -(gh + kl) / 2, 1e-4);
  EXPECT_HAS(refusal("composition", "d.jsonl", "{\"task_id\": \"task74\", \"texts\": \"x\"}"), "task0 to task73");
  // If the context is short, each answer is scored separately.
  config::ModelOptions options = model_options(0);
  options.context_length = 12;
  const models::LanguageModel small(options, 5);
  const ZeroShotResult apart =
      evaluate_zero_shot(small, *tokenizer_, {.task = "composition", .data = folder_ / "c.jsonl"});
  EXPECT_EQ(apart.subsets.size(), 2U);
  EXPECT_EQ(apart.texts, 3);
  // If the answers fit into the context together, they are scored together.
  write_text_file(folder_ / "e.jsonl",
                  "{\"task_id\": \"task6\", \"texts\": \"ab [ cd ]\\nef [ gh ]\\nij [ kl ]\\n\"}\n");
  const ZeroShotResult part =
      evaluate_zero_shot(small, *tokenizer_, {.task = "composition", .data = folder_ / "e.jsonl"});
  EXPECT_EQ(part.texts, 2);
  EXPECT_EQ(part.truncated, 1);
  const auto alone = [&](const std::string& context, const std::string& answer) {
    return by_definition(small, context, answer).log_probability;
  };
  EXPECT_NEAR(part.subsets.at("object_superclass/who").log_probability,
              alone("ab", " cd") + alone("ab cd\nef", " gh") + alone("ab cd\nef gh\nij", " kl"), 1e-4);
}

TEST_F(ZeroShot, CompositionByExamples) {
  const std::string row = "{\"task_id\": \"task6\", \"texts\": \"ab [ cd ]\\nef [ gh ]\\n\"}\n";
  write_text_file(folder_ / "s.jsonl", row + row);
  ZeroShotRequest request{.task = "composition", .data = folder_ / "s.jsonl"};
  EXPECT_FALSE(to_json(evaluate_zero_shot(model_, *tokenizer_, request)).contains("by_shots"));
  request.by_shots = true;
  const ZeroShotResult result = evaluate_zero_shot(model_, *tokenizer_, request);
  ASSERT_EQ(result.by_shots.size(), 2U);
  EXPECT_NEAR(result.by_shots.at(2).log_probability, 2 * sum("ab", " cd"), 1e-4);
  EXPECT_NEAR(result.by_shots.at(3).log_probability, 2 * sum("ab cd\nef", " gh"), 1e-4);
  EXPECT_EQ(to_json(result)["by_shots"]["3"]["answers"], 2);
  EXPECT_HAS(to_text(result), "after 3 examples  accuracy ");
  request.task = "lambada";
  EXPECT_THROW(evaluate_zero_shot(model_, *tokenizer_, request), UserError);
}

TEST_F(ZeroShot, TargetLossCountsOnlyTheTargetsTokens) {
  const ZeroShotResult result = run("target_loss", "t.jsonl",
                                    "{\"inputs\": \"every token\", \"targets\": \"rests\"}\n{\"prompt\": \"the "
                                    "head:\\n\", \"completion\": \"room\"}\n");
  const double both = sum("every token", " rests") + sum("the head:", "\nroom");
  const Json json = to_json(result);
  EXPECT_EQ(json["target_tokens"], 6 + 5);
  EXPECT_NEAR(json["loss"].get<double>(), -both / 11, 1e-5);
  EXPECT_NEAR(std::log(json["perplexity"].get<double>()), -both / 11, 1e-5);
  EXPECT_EQ(json["questions"], 2);
  // A blank is added only between texts that do not have one, and an instruction's input is read.
  const std::pair<const char*, double> rows[] = {
      {R"({"prompt": "every token", "completion": " rests"})", sum("every token", " rests")},
      {R"({"inputs": "every", "targets": "\nroom"})", sum("every", "\nroom")},
      {R"({"instruction": "the head:", "input": "every token", "output": "rests"})",
       sum("the head:\nevery token", " rests")},
      {R"({"instruction": "the head:", "input": "", "output": "rests"})", sum("the head:", " rests")}};
  for (const auto& [row, expected] : rows) {
    const Json one = to_json(run("target_loss", "one.jsonl", std::string(row) + "\n"));
    EXPECT_NEAR(one["loss"].get<double>() * one["target_tokens"].get<double>(), -expected, 1e-4) << row;
  }
  EXPECT_HAS(refusal("target_loss", "u.jsonl", "{\"inputs\": \"a\"}"), "u.jsonl:1: must have the fields");
}

// Reads all questions of the public files, if available.
TEST_F(ZeroShot, ReadsThePublicFiles) {
  const std::filesystem::path data = std::filesystem::path(HEADROOM_SOURCE_DIR).parent_path() / "shared" / "data";
  if (!std::filesystem::exists(data)) {
    GTEST_SKIP() << "the public data is not at " << data.string();
  }
  const auto questions = [&](const std::string& task, const std::string& name) {
    const ZeroShotResult result =
        evaluate_zero_shot(model_, *tokenizer_, {.task = task, .data = data / name, .options = {.batch_size = 64}});
    std::int64_t count = 0;
    for (const auto& [subset, tally] : result.subsets) {
      count += tally.questions;
    }
    return std::pair(count, result.subsets.size());
  };
  EXPECT_EQ(questions("cbt", "cbt/cbt_format_sample.tar.gz"), (std::pair<std::int64_t, std::size_t>(4, 4)));
  EXPECT_EQ(questions("copa", "zeroshot_llmfoundry/copa.jsonl.gz"), (std::pair<std::int64_t, std::size_t>(100, 1)));
}

}  // namespace headroom::zero_shot::zero_shot_test
