// An analysis: what it wants to see of a forward pass, what it makes of it, and how it is found by name.
//
// Values come one at a time, each when the layer has it, so that an analysis holds what it sums up and never a whole
// pass. Names and shapes are those of nn/observer.h.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"
#include "reader.h"

namespace headroom::inspect {

// Markup for the page: a chart, a table, a map.
struct Picture {
  std::string caption, remark;  // text
  std::string markup;           // HTML or SVG
  bool whole = false;           // takes the page's width
};

struct Findings {
  Json figures = Json::object();              // to analysis.json
  std::map<std::string, at::Tensor> tensors;  // to a safetensors file, under "<analysis>.<name>"
  std::vector<Picture> pictures;
  std::string summary;  // a line for the terminal
};

class Analysis {
 public:
  virtual ~Analysis() = default;
  // Sequences that it wants to see one by one, whose values of every pair of tokens it may ask for. The first is the
  // beginning of the text, the others are spread over it.
  virtual std::int64_t samples() const { return 0; }
  // Whether it wants all of the text, several sequences side by side.
  virtual bool reads_all() const { return false; }
  virtual void begin(const Reading& /*reading*/) {}
  virtual bool wants(std::string_view /*name*/, const Reading& /*reading*/) const { return false; }
  virtual void see(std::string_view /*name*/, const at::Tensor& /*value*/, const Reading& /*reading*/) {}
  virtual void end(const Reading& /*reading*/) {}
  // What was found; analyses of the parameters, and those that read sequences of their own, do all of it here.
  virtual Findings finish(const Reader& reader) = 0;
};

struct AnalysisKind {
  std::string_view name;   // as --what spells it
  int place;               // on the page: pictures of the text first, parameters last
  std::string_view about;  // what it shows, for the page
  // Why a model of these options has no such analysis, after "has no <name>: "; empty: it has.
  std::string (*refusal)(const config::ModelOptions& options);
  std::unique_ptr<Analysis> (*make)(const Reader& reader);
};

// Every analysis that there is, by name.
const std::map<std::string_view, AnalysisKind>& analysis_kinds();

// At namespace scope in the analysis's file: const Registration kRank({.name = "rank", ...});
class Registration {
 public:
  explicit Registration(const AnalysisKind& kind);
};

}  // namespace headroom::inspect
