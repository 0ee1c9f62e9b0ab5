// Analyses of trained models: which are asked for, of which text, and what is written.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "analysis.h"
#include "headroom/core/json.h"

namespace headroom::inspect {

// What is read: `text`, else `data`, a file of the kind that the run was validated on, else the beginning of the run's
// validation data. A `text` for a model of translation or a classifier has a text a line, or a pair with a tab between
// source and translation or the two texts.
struct TextChoice {
  std::string text, data;
  std::string name() const { return !text.empty() ? "--text" : data.empty() ? "the run's validation data" : data; }
};

struct AnalyseRequest {
  std::vector<std::string> what;  // names; empty: all that the model has
  TextChoice text;
  std::string command;  // as it was typed, for the page
};

// The figures of one model.
struct Analysed {
  std::string name;  // of the run, or of a checkpoint of it
  std::int64_t step = 0;
  std::vector<std::pair<const AnalysisKind*, Findings>> analyses;
};

// Throws UserError for a name among `what` that no analysis has, and for one that a model of these options, called
// `model`, has not got, saying why: before anything is read.
void require_analyses(const std::vector<std::string>& what, const config::ModelOptions& options,
                      const std::string& model);

// Throws UserError for a name that no analysis has, for one that the model has not got, saying why, and for a text
// that cannot be read.
Analysed analyse(const store::OpenedModel& opened, const AnalyseRequest& request);

// Writes analysis.json, report.html and analysis.safetensors into the folder, each aside and renamed, and returns the
// document {"analyses": name to figures, ...} of analysis.json, with the page's path under "report".
Json write_analyses(const std::vector<Analysed>& all, const AnalyseRequest& request, const std::filesystem::path& out);
// Throws UserError where the folder holds a report of another command.
void require_room_for_analyses(const std::filesystem::path& out);

}  // namespace headroom::inspect
