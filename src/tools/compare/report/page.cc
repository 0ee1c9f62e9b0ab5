// Composes the page of a comparison.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>

#include "foundation/core/transformed.h"
#include "foundation/draw/page.h"
#include "headroom/core/files.h"
#include "sections.h"
#include "tools/compare/run/checks.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

// Lists the keys in which the configs differ, with their values.
Json config_differences(const std::vector<ComparedRun>& runs) {
  Table table{.columns = {{.name = "key"}}, .rows = {}};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    table.columns.push_back({.name = shorten(runs[r].name, 24), .style = r});
  }
  for (const Difference& difference : differences(transformed(runs, [](const ComparedRun& run) {
         return NamedConfig{run.name, run.config};
       }))) {
    std::vector<Cell>& row = table.rows.emplace_back(1, Cell{.text = difference.key});
    for (const auto& [value, name] : difference.values) {
      row.push_back({.text = shorten(value, 60)});
    }
  }
  return table.rows.empty() ? Json::array()
                            : Json{{{"note", "Keys in which the configurations differ."}}, block_of(table, " narrow")};
}

// Joins the distinct values of text(run) over all runs.
template <class Text>
std::string distinct_values(const std::vector<ComparedRun>& runs, const Text& text) {
  std::vector<std::string> all;
  for (const ComparedRun& run : runs) {
    for (const TrainedRun& trained : run.trained) {
      const std::string one = text(trained);
      if (!one.empty() && std::ranges::find(all, one) == all.end()) {
        all.push_back(one);
      }
    }
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

// Returns "2026-03-01 10:12 UTC", or the earliest and latest date.
std::string dates_of(const std::vector<ComparedRun>& runs) {
  std::set<std::string> dates;
  for (const ComparedRun& run : runs) {
    for (const TrainedRun& trained : run.trained) {
      if (!trained.finished.empty()) {
        dates.insert(trained.finished);
      }
    }
  }
  return dates.empty() ? "" : dates.size() == 1 ? *dates.begin() : *dates.begin() + " to " + *dates.rbegin();
}

}  // namespace

Json figure(const std::string& caption, const std::string& remark, Json chart) {
  return {{"figure", caption}, {"remark", remark}, {"blocks", Json::array({std::move(chart)})}};
}

void append(Json& blocks, Json more) {
  for (Json& block : more) {
    blocks.push_back(std::move(block));
  }
}

namespace {

Json configuration_section(const CompareResult& result) {
  const ComparedRun& first = result.runs.front();
  Json blocks = {{{"heading", result.runs.size() > 1 ? "Configurations" : "Configuration"}}};
  append(blocks, config_differences(result.runs));
  Json code = {{"code", config::to_toml(first.config)}};
  Json details = {{"details", "All of " + first.name}, {"blocks", Json::array({std::move(code)})}};
  blocks.push_back({{"card", Json::array({std::move(details)})}});
  return blocks;
}

Json method_section(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  const auto origin = [&runs](std::string Origin::*text) {
    return distinct_values(runs, [text](const TrainedRun& run) { return run.origin.*text; });
  };
  const auto data = [&runs](std::string train::RunData::*text) {
    return distinct_values(runs, [text](const TrainedRun& run) { return run.origin.data.*text; });
  };
  Json entries = Json::array(
      {{"Command", result.command, true},
       {"Finished", dates_of(runs)},
       {"Trained by", origin(&Origin::program)},
       {"Machine", origin(&Origin::machine)},
       {"Training data", data(&train::RunData::training)},
       {"Validation data", data(&train::RunData::validation)},
       {"Tokenizer", data(&train::RunData::tokenizer)},
       {"Validation", std::string(runs.front().task().protocol())},
       {"Attention costs",
        "multiply-accumulates, and values stored for the backward pass, of one layer and one sequence, counted as in "
        "the SwitchHead paper; those of a training step are counted as executed: three times the matrix "
        "multiplications of the whole model's forward pass"},
       {"Peak memory",
        "the highest resident memory of the process during the run, including the program and its libraries"},
       {"Time", "wall clock of the training steps, without evaluation and checkpoints"},
       {"Seeds", distinct_values(runs, [](const TrainedRun& run) { return std::to_string(run.seed); }) +
                     ", for parameters, dropout and the order of the data, which is the same for all models"},
       {"This page", fmt::format("made {} by {}", train::utc_now(), train::program_version())}});
  return {{{"heading", "How it was measured"}}, {{"entries", std::move(entries)}}};
}

Json continuations(const CompareResult& result) {
  Json blocks = Json::array();
  for (std::size_t p = 0; p < result.prompts.size(); ++p) {
    Json samples = Json::array();
    for (std::size_t r = 0; r < result.runs.size(); ++r) {
      const ComparedRun& run = result.runs[r];
      if (p < run.samples.size()) {
        Json text = {{"prompt", result.prompts[p]}, {"text", run.samples[p]}};
        samples.push_back({{"name", run.name}, {"style", r}, {"texts", Json::array({std::move(text)})}});
      }
    }
    blocks.push_back({{"samples", std::move(samples)}});
  }
  if (!blocks.empty()) {
    blocks.insert(blocks.begin(),
                  {Json{{"heading", "Sample text"}},
                   Json{{"note", fmt::format("Every model continues the same prompt (grey): {}.", result.sampling)}}});
  }
  return blocks;
}

// Shows up to kShown of each run's samples, evenly spaced, including the last.
Json samples_during_training(const std::vector<ComparedRun>& runs) {
  constexpr std::size_t kShown = 8;
  Json samples = Json::array();
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::vector<SampleText>& all = runs[r].trained.front().log.samples;
    const std::size_t shown = std::min(all.size(), kShown);
    Json texts = Json::array();
    for (std::size_t i = 1; i <= shown; ++i) {
      const SampleText& sample = all[i * all.size() / shown - 1];
      texts.push_back({{"step", sample.step}, {"prompt", sample.prompt}, {"text", sample.text}});
    }
    if (!texts.empty()) {
      samples.push_back({{"name", runs[r].name}, {"style", r}, {"texts", std::move(texts)}});
    }
  }
  return samples.empty() ? samples
                         : Json{{{"heading", "Samples from training"}},
                                {{"note", "Continuations of a prompt (grey) during training."}},
                                {{"samples", std::move(samples)}}};
}

Json sentences(const char* kind, const std::vector<std::string>& all) {
  return all.empty() ? Json::array() : Json::array({{{"sentences", all}, {"kind", kind}}});
}

}  // namespace

Json page_of(const CompareResult& result) {
  Json header = sentences("lead", result.conclusion), blocks = result_section(result);
  if (!result.about.empty()) {
    header.push_back({{"note", result.about}});
  }
  append(header, sentences("warn", result.notes));
  for (const CompareResult& other : result.further) {
    blocks.push_back({{"heading", other.title}});
    blocks.push_back({{"note", other.about}});
    append(blocks, sentences("lead", other.conclusion));
    append(blocks, result_section(other));
  }
  for (Json (*const section)(const CompareResult&) :
       {scaling_section, value_section, learning_section, cost_section, continuations}) {
    append(blocks, section(result));
  }
  append(blocks, samples_during_training(result.runs));
  append(blocks, configuration_section(result));
  append(blocks, method_section(result));
  return {{"title", result.title},
          {"refresh", result.refresh_seconds},
          {"header", std::move(header)},
          {"blocks", std::move(blocks)}};
}

void write_page(CompareResult& result, const std::filesystem::path& file) {
  result.report = file;
  write_text_file(file, draw::block_page(page_of(result)));
}

}  // namespace headroom::compare
