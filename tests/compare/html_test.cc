#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "compare/example.h"
#include "headroom/compare/compare.h"

namespace headroom::compare {
namespace html_test {

using testing::example_run;
using testing::example_seeds;

CompareResult example() {
  CompareResult result;
  result.title = "Title";
  result.command = "headroom compare a b";
  result.runs = {example_run("a", 7.0), example_run("b", 8.0, 400)};
  result.prompts = {"once upon"};
  result.runs[0].samples = {" a time"};
  result.runs[1].samples = {" a prompt"};
  result.notes = {"train.seed differs: 1 (a) and 2 (b)."};
  result.conclusion = conclude(result.runs);
  return result;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++n;
  }
  return n;
}

// Every element that is opened is closed, in order.
void expect_well_formed(const std::string& html) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z0-9]+)([^>]*)>");
  for (std::sregex_iterator i(html.begin(), html.end(), tag), end; i != end; ++i) {
    const std::string name = (*i)[2], rest = (*i)[3];
    if (name == "meta" || name == "br" || (!rest.empty() && rest.back() == '/')) {
      continue;
    }
    if ((*i)[1].length() == 0) {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty()) << open.back();
}

TEST(Report, ShowsEverythingThatWasCompared) {
  const CompareResult result = example();
  const std::string html = render_report(result);
  expect_well_formed(html);
  for (const std::string& part :
       {result.conclusion, result.command, std::string("train.seed differs"), std::string("once upon"),
        std::string(" a prompt"), std::string("a CPU, 2 threads, fp32"), std::string("prefers-color-scheme: dark")}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(count(html, "<svg class='chart'"), 8u) << "two curves, six bars; the same MACs of a step";
  EXPECT_EQ(count(html, "<details>"), 1u) << "the first one's whole config";
  EXPECT_NE(html.find("d_model = 256"), std::string::npos) << "the resolved config";
}

TEST(Report, OfSeveralSeedsShowsBandsIntervalsAndWhatWasTuned) {
  CompareResult result = example();
  result.runs = {example_seeds("a", {7.0, 7.2}), example_seeds("b", {8.0, 8.1}, 400)};
  result.variations = {{"train.learning_rate", {"0.001", "1e+30"}}};
  for (ComparedRun& run : result.runs) {
    run.values = {{"train.learning_rate", "0.001"}};
    run.tried = {{{{"train.learning_rate", "0.001"}}, 7.0, true},
                 {{{"train.learning_rate", "1e+30"}}, std::nan(""), false}};
  }
  const std::string html = render_report(result);
  expect_well_formed(html);
  EXPECT_EQ(count(html, "<svg class='chart'"), 9u) << "two curves, the differences, six bars";
  EXPECT_EQ(count(html, "class='band s1'"), 2u);
  EXPECT_EQ(count(html, "class='reach s1'"), 1u);
  EXPECT_NE(html.find("7.10 \u00b1 0.14"), std::string::npos);
  EXPECT_NE(html.find("<td class='text'>learning_rate 1e+30</td><td>diverged</td>"), std::string::npos);
  EXPECT_EQ(html.find("one run a model"), std::string::npos);
  EXPECT_NE(html.find("1 and 2: of parameters"), std::string::npos);
}

TEST(Report, ShowsLossesExpertsAndQualityAgainstCost) {
  CompareResult result = example();
  for (ComparedRun& run : result.runs) {
    run.trained[0].history.training = {{.step = 10, .loss = 3.0}, {.step = 100, .loss = 2.0}};
  }
  result.runs[1].executed["step_macs"] = 9000;
  result.runs[1].trained[0].history.validation = {
      {.step = 20, .experts = {{"a", {.entropy = 0.9}}, {"b", {.entropy = 0.5}}}},
      {.step = 100, .experts = {{"a", {.entropy = 0.8}}, {"b", {.entropy = 0.0}}}}};
  const std::string html = render_report(result);
  expect_well_formed(html);
  EXPECT_EQ(count(html, "<svg class='chart'"), 11u) << "losses, experts, a scatter";
  EXPECT_EQ(count(html, "class='faint s"), 2u);
  EXPECT_NE(html.find("Use of experts"), std::string::npos);
  EXPECT_NE(html.find("Quality against cost"), std::string::npos);
}

TEST(Report, ShowsInWhatConfigurationsDiffer) {
  CompareResult result = example();
  result.runs[1].config.model.attention.n_heads = 3;
  const std::string html = render_report(result);
  EXPECT_NE(html.find("<td class='name'>model.attention.n_heads</td><td>8</td><td>3</td>"), std::string::npos);
  EXPECT_EQ(html.find("<td class='name'>model.d_model</td>"), std::string::npos);
  EXPECT_NE(html.find("headroom 0."), std::string::npos) << "version";
  EXPECT_TRUE(std::regex_search(html, std::regex("made 20[0-9][0-9]-[0-9-]+ [0-9:]+ UTC by headroom"))) << "date";
}

TEST(Report, OfASweepShowsWhatEachKeyDoes) {
  CompareResult result = example();
  result.kind = Kind::sweep;
  result.variations = {{"train.learning_rate", {"1e-2", "0.001"}}, {"train.schedule", {"cosine"}}};
  result.runs[0].values = {{"train.learning_rate", "0.001"}, {"train.schedule", "cosine"}};
  result.runs[1].values = {{"train.learning_rate", "1e-2"}, {"train.schedule", "cosine"}};
  const std::string html = render_report(result);
  expect_well_formed(html);
  EXPECT_EQ(count(html, "against train."), 1u) << "a key with one value shows nothing";
  EXPECT_LT(html.find(">0.001</text>"), html.find(">1e-2</text>")) << "numbers in their order";
  EXPECT_NE(html.find("<th scope='col' class='text'><br>learning_rate</th>"), std::string::npos);
}

TEST(Report, NeedsNoNetworkAndNoScript) {
  const std::string html = render_report(example());
  for (const char* part : {"http:", "https:", "<script", "<link", "@import", "url(", "src="}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
}

TEST(Report, MarksTheBestOfAColumn) {
  const std::string html = render_report(example());
  EXPECT_NE(html.find("<td class='best'>7.00</td>"), std::string::npos);
  EXPECT_NE(html.find("<td class='best'>400</td>"), std::string::npos) << "attention MACs";
  EXPECT_EQ(html.find("<td class='best'>500</td>"), std::string::npos) << "equal attention memory is nobody's best";
}

TEST(Report, MarksNothingOfARunThatDiverged) {
  CompareResult result = example();
  TrainedRun& wild = result.runs[1].trained[0];
  wild.diverged = "the loss is nan";
  wild.result = {};
  const std::string html = render_report(result);
  const std::size_t row = html.find("b</td>");
  const std::string cells = html.substr(row, html.find("</tr>", row) - row);
  EXPECT_NE(cells.find("diverged"), std::string::npos) << cells;
  EXPECT_NE(cells.find("<td>\u2013</td>"), std::string::npos) << cells;
  EXPECT_EQ(cells.find("class='best'"), std::string::npos) << cells;
}

TEST(Report, CannotBeBrokenByTextFromOutside) {
  CompareResult result = example();
  const std::string evil = "</pre><script>alert('x')</script>\"'\xff\x01";
  result.title = result.command = result.conclusion = evil;
  result.prompts = {evil};
  result.notes = {evil};
  for (ComparedRun& run : result.runs) {
    run.name = run.trained[0].machine = evil;
    run.samples = {evil};
    run.config.tokenizer.model = evil;
  }
  const std::string html = render_report(result);
  expect_well_formed(html);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  EXPECT_EQ(html.find('\x01'), std::string::npos);
}

TEST(Report, StandsOneRunWithoutHistoryOrSample) {
  CompareResult result = example();
  result.runs.resize(1);
  result.runs[0].trained[0].result.validation.clear();
  result.prompts.clear();
  const std::string html = render_report(result);
  expect_well_formed(html);
  EXPECT_EQ(html.find("Sample text"), std::string::npos);
  EXPECT_EQ(html.find("class='best'"), std::string::npos);
}

}  // namespace html_test
}  // namespace headroom::compare
