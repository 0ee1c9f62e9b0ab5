// Analyses of trained models (`headroom analyse`): the interface of an analysis, the registry of analyses by name, and
// running them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/core/json.h"
#include "model_runner.h"

namespace headroom::analyse {

// A chart, table or heat map in the report.
struct Figure {
  std::string caption, remark;  // plain text
  Json blocks = Json::array();  // foundation/draw/page.h
  bool full_width = false;
};

struct Findings {
  Json metrics = Json::object();              // written to analysis.json
  std::map<std::string, at::Tensor> tensors;  // written to analysis.safetensors as "<analysis>.<name>"
  std::vector<Figure> figures;
  std::string summary;  // one line, for the terminal
};

// Receives the intermediate values of forward passes one at a time, as layers compute them, and accumulates its
// statistics. nn/observer.h lists the names and shapes of the values.
class Analysis {
 public:
  virtual ~Analysis() = default;
  // The number of sample sequences to run one by one. Pair values [H, T, S] are available only in these passes. The
  // first sample is the start of the text; the others are evenly spaced. AnalyseRequest::samples replaces a number
  // above 1.
  virtual std::int64_t samples() const { return 0; }
  // Whether to run the whole text, several sequences in a batch.
  virtual bool wants_all_text() const { return false; }
  virtual void begin_pass(const InputBatch& /*input*/) {}
  virtual bool wants(std::string_view /*name*/, const InputBatch& /*input*/) const { return false; }
  virtual void observe_value(std::string_view /*name*/, const at::Tensor& /*value*/, const InputBatch& /*input*/) {}
  virtual void end_pass(const InputBatch& /*input*/) {}
  // Called once, after all passes. An analysis that reads only parameters or generates its own input does all its work
  // here.
  virtual Findings finish(const ModelRunner& runner) = 0;
};

struct AnalyseRequest {
  std::vector<std::string> what = {};  // names of analyses; empty: all that are useful for the model
  TextInput text = {};
  std::string command = {};  // the command line, for the report
  std::int64_t samples = 0;  // replaces the number of samples in analyses that average over samples; 0: unchanged
  std::optional<std::int64_t> key = {};  // composition: position of the key of the pair that is shown
};

struct AnalysisKind {
  std::string_view name;   // as in --what
  int order;               // position on the page, ascending
  std::string_view about;  // one sentence for the page
  // Returns the reason why the analysis does not apply to these options; empty if it applies.
  std::string (*refusal)(const config::ModelOptions& options);
  std::unique_ptr<Analysis> (*make)(const ModelRunner& runner, const AnalyseRequest& request);
  // Whether to run the analysis if --what is not given; null: whenever it applies.
  bool (*by_default)(const config::ModelOptions& options) = nullptr;
  bool reads_text = true;  // false: it reads the parameters alone
};

template <class T>
std::unique_ptr<Analysis> make_analysis(const ModelRunner& runner, const AnalyseRequest& request) {
  if constexpr (std::is_default_constructible_v<T>) {
    return std::make_unique<T>();
  } else if constexpr (std::is_constructible_v<T, const ModelRunner&>) {
    return std::make_unique<T>(runner);
  } else {
    return std::make_unique<T>(runner, request);
  }
}

const std::map<std::string_view, AnalysisKind>& analysis_kinds();

// At namespace scope in the analysis's file: const AnalysisRegistration kRank({.name = "rank", ...});
class AnalysisRegistration {
 public:
  explicit AnalysisRegistration(const AnalysisKind& kind);
};

struct ModelFindings {
  std::string name;  // of the run or checkpoint
  std::int64_t step = 0;
  std::vector<std::pair<const AnalysisKind*, Findings>> analyses;
};

// Checks the request before any data is read. Throws UserError if an analysis is unknown or does not apply to these
// options, or if no analysis has a key to show; `model` names the model in the message.
void require_analyses(const AnalyseRequest& request, const config::ModelOptions& options, const std::string& model);

// Throws UserError if require_analyses() does, if the text cannot be read, or if it has no such key.
ModelFindings analyse(const store::OpenedModel& opened, const AnalyseRequest& request);

// Writes analysis.json, report.html and analysis.safetensors to the folder `out`. Returns the document of
// analysis.json, {"analyses": {name: metrics}, ...}, with the path of the page under "report".
Json write_analyses(const std::vector<ModelFindings>& all, const AnalyseRequest& request,
                    const std::filesystem::path& out);
// Throws UserError if `out` is a file, or a folder that contains another command's report.html or, unless `force` is
// set, an analysis.
void check_output_folder(const std::filesystem::path& out, bool force);

// Groups of layers that an analysis can treat alike, in models whose layers differ (model.layers).

struct LayerGroup {
  std::vector<std::int64_t> layers;  // their numbers, ascending
  config::ModelOptions options;      // `attention`: of these layers, apart from windows and rotary bases
};

// Returns a single group with the model's own options if the attention layers differ in their windows and rotary bases
// at most. Otherwise the layers of a group have the same attention and the same kind of MLP.
std::vector<LayerGroup> layer_groups(const config::ModelOptions& options);

// Joins what an analysis found in each of several groups: metrics by group ("layers 0, 2"), and all tensors and
// figures.
Findings joined(std::vector<std::pair<const LayerGroup*, Findings>> groups);

}  // namespace headroom::analyse
