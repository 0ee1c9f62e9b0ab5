// Analyses of trained models (`headroom analyse`): the interface of an analysis, the registry of analyses by name, and
// running them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "headroom/core/json.h"
#include "model_runner.h"

namespace headroom::analyse {

// A chart, a table or a map of the report.
struct Figure {
  std::string caption, remark;  // plain text
  std::string markup;           // HTML or SVG
  bool full_width = false;
};

struct Findings {
  Json metrics = Json::object();              // written to analysis.json
  std::map<std::string, at::Tensor> tensors;  // written to analysis.safetensors as "<analysis>.<name>"
  std::vector<Figure> figures;
  std::string summary;  // one line, for the terminal
};

// An analysis receives the intermediate values of forward passes one at a time, as layers compute them, and accumulates
// what it reports. Names and shapes of values are listed in nn/observer.h.
class Analysis {
 public:
  virtual ~Analysis() = default;
  // The number of sample sequences to run one by one; pair values [H, T, S] are available for these only. The first
  // sample is the start of the text, the others are spread evenly over it.
  virtual std::int64_t samples() const { return 0; }
  // Whether to run the whole text, several sequences in a batch.
  virtual bool wants_all_text() const { return false; }
  virtual void begin_pass(const InputBatch& /*input*/) {}
  virtual bool wants(std::string_view /*name*/, const InputBatch& /*input*/) const { return false; }
  virtual void observe_value(std::string_view /*name*/, const at::Tensor& /*value*/, const InputBatch& /*input*/) {}
  virtual void end_pass(const InputBatch& /*input*/) {}
  // Called once, after all passes. An analysis of parameters, or of generated sequences, does all its work here.
  virtual Findings finish(const ModelRunner& runner) = 0;
};

struct AnalysisKind {
  std::string_view name;   // as in --what
  int order;               // on the page
  std::string_view about;  // one sentence for the page
  // Why the analysis does not apply to these options; empty if it does.
  std::string (*refusal)(const config::ModelOptions& options);
  std::unique_ptr<Analysis> (*make)(const ModelRunner& runner);
};

template <class T>
std::unique_ptr<Analysis> make_analysis(const ModelRunner& runner) {
  if constexpr (std::is_default_constructible_v<T>) {
    return std::make_unique<T>();
  } else {
    return std::make_unique<T>(runner);
  }
}

const std::map<std::string_view, AnalysisKind>& analysis_kinds();

// At namespace scope in the analysis's file: const AnalysisRegistration kRank({.name = "rank", ...});
class AnalysisRegistration {
 public:
  explicit AnalysisRegistration(const AnalysisKind& kind);
};

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
