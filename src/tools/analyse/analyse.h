// Analyses of trained models: `headroom analyse`.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "analysis.h"
#include "headroom/core/json.h"

namespace headroom::analyse {

struct AnalyseRequest {
  std::vector<std::string> what;  // names of analyses; empty: all that apply to the model
  TextInput text;
  std::string command;  // the command line, for the report
};

struct ModelFindings {
  std::string name;  // of the run, or of one of its checkpoints
  std::int64_t step = 0;
  std::vector<std::pair<const AnalysisKind*, Findings>> analyses;
};

// Checks `what` before any data is read. Throws UserError if an analysis is unknown or does not apply to these options;
// `model` names the model in the message.
void require_analyses(const std::vector<std::string>& what, const config::ModelOptions& options,
                      const std::string& model);

// Throws UserError as require_analyses() does, and if the text cannot be read.
ModelFindings analyse(const store::OpenedModel& opened, const AnalyseRequest& request);

// Writes analysis.json, report.html and analysis.safetensors to the folder `out`. Returns the document of
// analysis.json, {"analyses": {name: metrics}, ...}, with the path of the page under "report".
Json write_analyses(const std::vector<ModelFindings>& all, const AnalyseRequest& request,
                    const std::filesystem::path& out);
// Throws UserError if `out` is a file, or a folder with another command's report.html.
void check_output_folder(const std::filesystem::path& out);

}  // namespace headroom::analyse
