#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "example.h"
#include "tools/compare/compare.h"

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

// Every opened element is closed, in order.
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
       {result.conclusion.at(0), result.conclusion.at(1), result.conclusion.at(2), result.command,
        std::string("train.seed differs"), std::string("once upon"), std::string(" a prompt"),
        std::string("a CPU, 2 threads, fp32"), std::string("prefers-color-scheme: dark")}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(count(html, "<svg class='chart'"), 3u) << "two curves, attention MACs; the same MACs of a step";
  EXPECT_EQ(count(html, "<details>"), 1u) << "the first one's whole config";
  EXPECT_NE(html.find("d_model = 256"), std::string::npos) << "the resolved config";
}

TEST(Report, OfSeveralSeedsShowsBandsIntervalsAndWhatWasTuned) {
  CompareResult result = example();
  result.runs = {example_seeds("a", {7.0, 7.2}), example_seeds("b", {8.0, 8.1}, 400)};
  result.variations = {{"train.learning_rate", {"0.001", "1e+30"}}};
  for (ComparedRun& run : result.runs) {
    run.values = {{"train.learning_rate", "0.001"}};
    run.tuning = {{{{"train.learning_rate", "0.001"}}, 7.0, true},
                  {{{"train.learning_rate", "1e+30"}}, std::nan(""), false}};
  }
  const std::string html = render_report(result);
  expect_well_formed(html);
  EXPECT_EQ(count(html, "<svg class='chart'"), 4u) << "two curves, the differences, attention MACs";
  EXPECT_EQ(count(html, "class='band s1'"), 2u);
  EXPECT_HAS(html, "Quality against attention MACs");
  EXPECT_EQ(count(html, "class='reach s1'"), 2u) << "the difference and the interval of the mean";
  EXPECT_HAS(html, "7.10 \u00b1 0.14");
  EXPECT_NE(html.find("<td class='name'>learning_rate 1e+30</td><td>diverged</td><td>diverged</td>"), std::string::npos)
      << "a line a combination, a column a model";
  EXPECT_EQ(html.find("one per model"), std::string::npos);
  EXPECT_HAS(html, "1 and 2, for parameters");
}

TEST(Report, ShowsLossesExpertsAndQualityAgainstCost) {
  CompareResult result = example();
  for (ComparedRun& run : result.runs) {
    run.trained[0].log.training = {{.step = 10, .loss = 3.0}, {.step = 100, .loss = 2.0}};
  }
  result.runs[1].executed["step_macs"] = 9000;
  result.runs[1].trained[0].log.validation = {
      {.step = 20, .experts = {{"a", {.entropy = 0.9}}, {"b", {.entropy = 0.5}}}},
      {.step = 100, .experts = {{"a", {.entropy = 0.8}}, {"b", {.entropy = 0.0}}}}};
  const std::string html = render_report(result);
  expect_well_formed(html);
  EXPECT_EQ(count(html, "<svg class='chart'"), 6u) << "two curves, losses, experts, both costs";
  EXPECT_EQ(count(html, "class='faint s"), 2u);
  EXPECT_HAS(html, "Use of experts");
  EXPECT_HAS(html, "Quality against MACs of a training step");
}

TEST(Report, ShowsHowConfigsDiffer) {
  CompareResult result = example();
  result.runs[1].config.model.attention.n_heads = 3;
  const std::string html = render_report(result);
  EXPECT_HAS(html, "<td class='name'>model.attention.n_heads</td><td>8</td><td>3</td>");
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
  EXPECT_HAS(html, "<th scope='col' class='text'>learning_rate</th>");
}

TEST(Report, NeedsNoNetworkAndNoScript) {
  const std::string html = render_report(example());
  for (const char* part : {"http:", "https:", "<script", "<link", "@import", "url(", "src="}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
}

TEST(Report, MarksTheBestOfAColumn) {
  const std::string html = render_report(example());
  EXPECT_HAS(html, "<td class='best'>7.00</td>");
  EXPECT_EQ(html.find("<td class='best'>1.500</td>"), std::string::npos) << "equal bits per byte are nobody's best";
}

std::string costs_in(const std::string& html) {
  const std::size_t begin = html.find("<h2>Costs</h2>");
  return html.substr(begin, html.find("<h2>", begin + 1) - begin);
}

TEST(Report, ShowsCostsAsOneTableOfBars) {
  CompareResult result = example();
  result.runs[1].trained[0].result.peak_memory_bytes = 0;
  const std::string costs = costs_in(render_report(result));
  EXPECT_EQ(count(costs, "<table>"), 1u);
  EXPECT_EQ(count(costs, "<th scope='col'>"), 3u)
      << "names, attention MACs and peak memory: the rest is alike: " << costs;
  EXPECT_NE(costs.find("<td class='cost least'>400 <small>0.4x</small><svg class='small-bar'"), std::string::npos)
      << costs;
  EXPECT_NE(costs.find("width='40.0'"), std::string::npos) << "a bar of that share";
  EXPECT_NE(costs.find("<td class='cost'>\u2013<svg"), std::string::npos) << "what is not known";
  EXPECT_NE(costs.find("The same for all: attention memory (500), MACs of a training step (3.00 k)"), std::string::npos)
      << costs;
}

// Costs are only in the cost table, so that the result table fits the page.
TEST(Report, HasNoMoreColumnsThanFitAPage) {
  CompareResult result = example();
  result.runs = {example_seeds("a", {7.0, 7.2}), example_seeds("b", {8.0, 8.1}, 400)};
  result.variations = {{"train.learning_rate", {"0.001", "0.002"}}};
  for (ComparedRun& run : result.runs) {
    run.values = {{"train.learning_rate", "0.001"}};
  }
  const std::string html = render_report(result);
  const std::string head = html.substr(html.find("<thead>"), html.find("</thead>") - html.find("<thead>"));
  EXPECT_EQ(count(head, "<th "), 7u) << head;
  EXPECT_EQ(head.find("MACs"), std::string::npos) << head;
}

CompareResult single() {
  CompareResult result = example();
  result.kind = Kind::run;
  result.runs.resize(1);
  result.notes.clear();
  result.prompts.clear();
  result.runs[0].trained[0].log.training = {{.step = 10, .loss = 3.0, .learning_rate = 1e-3, .gradient_norm = 2.0},
                                            {.step = 100, .loss = 2.0, .learning_rate = 5e-4, .gradient_norm = 0.5}};
  result.conclusion = conclude(result.runs);
  return result;
}

TEST(Report, OfASingleRunShowsWhatItsOptimizerDid) {
  const std::string html = render_report(single());
  expect_well_formed(html);
  EXPECT_EQ(count(html, "<svg class='chart'"), 5u) << "two curves, losses, learning rate, gradient norm";
  EXPECT_HAS(html, "<figcaption>Learning rate");
  EXPECT_HAS(html, "<figcaption>Gradient norm");
  EXPECT_HAS(html, "<dt>peak memory</dt><dd>300.0 MiB</dd>");
}

TEST(Report, MarksPointsThatCoverPartOfTheData) {
  CompareResult result = single();
  const std::string whole = render_report(result);
  result.runs[0].trained[0].result.validation[0].predictions = 64;
  const std::string part = render_report(result);
  EXPECT_EQ(whole.find("part of the validation data"), std::string::npos);
  EXPECT_HAS(part, "part of the validation data");
}

TEST(Report, OfASingleRunComparesItWithNothing) {
  const std::string html = render_report(single());
  for (const char* part : {"best of its column", "class='best'", "class='small-bar'", ">relative", "<h2>Costs</h2>"}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
}

TEST(Report, OfASingleRunShowsItsQualityFirstAndItsOrigin) {
  CompareResult result = single();
  result.runs[0].trained[0].origin = {
      .command = "",
      .machine = "a CPU",
      .program = "headroom 9, commit abc",
      .data = {.training = "train.txt", .validation = "held.txt", .tokenizer = "bytes"}};
  const std::string html = render_report(result);
  EXPECT_LT(html.find("<dt>validation perplexity</dt>"), html.find("<dt> heads</dt>"));
  for (const char* part : {"<code>headroom compare a b</code><button class='copy'", "<dt>Machine</dt><dd>a CPU</dd>",
                           "commit abc", "<dt>Training data</dt><dd>train.txt</dd>",
                           "<dt>Validation data</dt><dd>held.txt</dd>", "<dt>Tokenizer</dt><dd>bytes</dd>"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
}

TEST(Report, ShowsTheValuesUnderThePointer) {
  const std::string html = render_report(example());
  EXPECT_HAS(html, "<title>100 steps\na: 7.00\nb: 8.00</title>");
}

TEST(Report, ReloadsWhileItIsWatched) {
  CompareResult result = single();
  EXPECT_EQ(render_report(result).find("http-equiv"), std::string::npos);
  result.refresh_seconds = 5;
  EXPECT_HAS(render_report(result), "<meta http-equiv='refresh' content='5'>");
}

TEST(Report, DrawsLossesAsMeansOverTheSeeds) {
  CompareResult result = example();
  result.runs = {example_seeds("a", {7.0, 9.0}), example_seeds("b", {7.5, 7.5})};
  for (ComparedRun& run : result.runs) {
    for (TrainedRun& seed : run.trained) {
      seed.log.training = {{.step = 10, .loss = 3.0}, {.step = 100, .loss = 2.0}};
    }
  }
  const std::string html = render_report(result);
  const std::size_t begin = html.find("<figcaption>Training and validation loss");
  const std::string losses = html.substr(begin, html.find("</figure>", begin) - begin);
  const double a = (std::log(7.0) + std::log(9.0)) / 2.0 + std::exp(-100.0 / 30.0);
  EXPECT_NE(losses.find(fmt::format(">a: {:.2f}</text>", a)), std::string::npos)
      << "the label stands where the mean is, as in the other charts: " << losses;
}

TEST(Report, DoesNotMarkADivergedRun) {
  CompareResult result = example();
  TrainedRun& wild = result.runs[1].trained[0];
  wild.diverged = "the loss is nan";
  wild.result = {};
  const std::string html = render_report(result);
  const std::size_t row = html.find("b</td>");
  const std::string cells = html.substr(row, html.find("</tr>", row) - row);
  EXPECT_HAS(cells, "diverged");
  EXPECT_HAS(costs_in(html), "<td class='cost'>\u2013<svg");
  EXPECT_EQ(cells.find("class='best'"), std::string::npos) << cells;
}

TEST(Report, EscapesTextFromOutside) {
  CompareResult result = example();
  const std::string evil = "</pre><script>alert('x')</script>\"'\xff\x01";
  result.title = result.command = evil;
  result.conclusion = {evil};
  result.prompts = {evil};
  result.notes = {evil};
  for (ComparedRun& run : result.runs) {
    run.name = run.trained[0].origin.machine = evil;
    run.samples = {evil};
    run.config.tokenizer.model = evil;
  }
  const std::string html = render_report(result);
  expect_well_formed(html);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  EXPECT_EQ(html.find('\x01'), std::string::npos);
}

TEST(Report, HandlesARunWithoutHistoryOrSample) {
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
