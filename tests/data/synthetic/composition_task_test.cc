#include "data/synthetic/composition_task.h"

#include "data/synthetic/run_text.h"
#include "data/text/documents.h"
#include "data/text/support.h"
#include "headroom/core/json.h"

namespace headroom::data::composition_modelling_test {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for_each_line(text, [&](std::string_view line, std::int64_t) { lines.emplace_back(line); });
  return lines;
}

TEST(CompositionTask, ReadsAnswersInBrackets) {
  const CompositionRow row = parse_composition_row("\nA cat\nA [ dog ]\nA [ red fox ]\n", "x");
  EXPECT_EQ(row.text, "\nA cat\nA dog\nA red fox\n");
  ASSERT_EQ(row.answers.size(), 2U);
  EXPECT_EQ(row.text.substr(row.answers[1].begin, row.answers[1].end - row.answers[1].begin), "red fox");
  for (const char* bad :
       {"A [ dog", "A [dog ]", "A [ dog]", "A dog ]", "A [ ] x", "A [ a [ b ] ]", "A [ a\n b ]", "A", ""}) {
    EXPECT_HAS(user_error_of([&] { parse_composition_row(bad, "x:3"); }), "x:3: ");
  }
}

TEST(CompositionTask, SeventyFourTasksOfBlocksAndPatterns) {
  std::map<std::string, int> tasks;
  for (int task = 0; task < kCompositionSubtasks; ++task) {
    const CompositionSubtask about = composition_subtask(task);
    ++tasks[about.block + "/" + about.pattern];
  }
  EXPECT_EQ(tasks.size(), 7U * 4 + 9 * 2);
  for (const auto& [name, count] : tasks) {
    EXPECT_EQ(count, name.starts_with("odd") ? 1 : 2) << name;
  }
  EXPECT_THROW(composition_subtask(74), Error);
}

TEST(CompositionTask, GeneratedAnswersAreTheOnesAskedFor) {
  std::map<int, std::map<std::size_t, int>> places;
  for (int task = 0; task < kCompositionSubtasks; ++task) {
    Random random(static_cast<std::uint64_t>(task)), again(static_cast<std::uint64_t>(task));
    for (int i = 0; i < 20; ++i) {
      const std::string row = generate_composition_row(task, random);
      ASSERT_EQ(row, generate_composition_row(task, again));
      const CompositionRow parsed = parse_composition_row(row, "row");
      ASSERT_EQ(parsed.answers.size(), 6U) << row;
      const std::vector<std::string> lines = lines_of(row);
      ASSERT_EQ(lines.size(), 9U) << row;
      EXPECT_TRUE(lines[0].empty());
      for (std::size_t shot = 1; shot < lines.size(); ++shot) {
        EXPECT_EQ(lines[shot].find('[') != std::string::npos, shot > 2) << row;
        EXPECT_EQ(lines[shot].starts_with("< "), task < 56) << row;
      }
      const std::string pattern = composition_subtask(task).pattern;
      for (const std::string& line : lines_of(parsed.text)) {
        if (pattern != "who" && pattern != "who_not") {
          continue;
        }
        // The facts determine the right person. In "who_not", one fact has no twin.
        const std::size_t facts = line.find(" >. ");
        if (facts == std::string::npos) {
          continue;
        }
        const std::string person = line.substr(line.find("? ") + 2);
        const std::size_t at = line.find(person);
        EXPECT_LT(at, facts) << line;
        ++places[task][static_cast<std::size_t>(
            std::count(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(at), '.'))];
        const std::string asked = line.substr(line.find("? ") - 1, 1);
        EXPECT_NE(asked, " ") << line;
      }
    }
  }
  for (const auto& [task, counts] : places) {
    EXPECT_GE(counts.size(), 3U) << "the source stands in any place: task " << task;
    for (const auto& [place, count] : counts) {
      EXPECT_GT(count, 20) << "of 160, 53 are expected: task " << task;
    }
  }
}

TEST(CompositionTask, CopiesStandInTheFacts) {
  for (const int task : {8, 9, 10, 11, 24, 27, 56, 60, 65}) {
    Random random(static_cast<std::uint64_t>(task));
    for (int i = 0; i < 10; ++i) {
      const CompositionRow row = parse_composition_row(generate_composition_row(task, random), "row");
      for (const auto& answer : row.answers) {
        const std::string word = row.text.substr(answer.begin, answer.end - answer.begin);
        const std::size_t line = row.text.rfind('\n', answer.begin) + 1;
        EXPECT_LT(row.text.find(word, line), answer.begin) << row.text;
      }
    }
  }
}

TEST(CompositionTask, TextIsTheSameEveryTime) {
  const auto text = composition_text({300, 5});
  const std::string all = text_of(*text);
  EXPECT_EQ(text_of(*text), all) << "rewound";
  EXPECT_EQ(text_of(*composition_text({300, 5})), all);
  EXPECT_NE(text_of(*composition_text({300, 6})), all);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 300 * 9);
  EXPECT_EQ(all.find('['), std::string::npos);
  EXPECT_NE(composition_text({300, 6})->fingerprint(), text->fingerprint());
  config::DataOptions options;
  options.generator = config::Generator::composition;
  options.generated_train = 5;
  EXPECT_EQ(lines_of(text_of(*open_split(options, Split::train))).size(), 45U);
  EXPECT_EQ(lines_of(text_of(*open_split(options, Split::validation))).size(), 888U * 9);
}

}  // namespace headroom::data::composition_modelling_test
