#include "headroom/inspect/analyse.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/core/log.h"
#include "headroom/core/nearest.h"
#include "headroom/core/printable.h"
#include "inspect/layers.h"
#include "inspect/text.h"

namespace headroom::inspect {
namespace {

struct Running {
  const AnalysisKind* kind;
  std::unique_ptr<Analysis> analysis;
  bool watches = false;  // the reading that is under way
};

// Hands each value to the analyses that want it, and keeps none.
class Distributor : public nn::Observer {
 public:
  Distributor(std::vector<Running>& all, const Reading& reading) : all_(all), reading_(reading) {}
  bool wants(std::string_view name) const override {
    return std::any_of(all_.begin(), all_.end(), [&](const Running& one) { return wanted(one, name); });
  }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    for (Running& one : all_) {
      if (wanted(one, name)) {
        one.analysis->see(name, value, reading_);
      }
    }
    return value;
  }

 private:
  bool wanted(const Running& one, std::string_view name) const {
    return one.watches && one.analysis->wants(name, reading_);
  }

  std::vector<Running>& all_;
  const Reading& reading_;
};

void read_for(std::vector<Running>& all, const Reader& reader, const Reading& reading, models::Memory& memory) {
  stop_if_interrupted();
  for (Running& one : all) {
    if (one.watches) {
      one.analysis->begin(reading);
    }
  }
  Distributor observer(all, reading);
  reader.read(reading, memory, observer);
  for (Running& one : all) {
    if (one.watches) {
      one.analysis->end(reading);
    }
  }
}

// Sample i of `wanted`, spread over those that there are; the first is the beginning.
std::int64_t spread(std::int64_t i, std::int64_t wanted, std::int64_t there) {
  return wanted >= there ? i : i * there / wanted;
}

void show_samples(std::vector<Running>& all, const Reader& reader, const Text& text) {
  std::int64_t most = 0;
  for (const Running& one : all) {
    most = std::max(most, one.analysis->samples());
  }
  most = std::min(most, text.samples());
  if (most == 0) {
    return;
  }
  Progress progress("looking", most, "sequences");
  for (std::int64_t i = 0; i < most; ++i) {
    models::Memory memory;
    const Reading reading = text.sample(spread(i, most, text.samples()), memory);
    for (Running& one : all) {
      one.watches = i < one.analysis->samples();
    }
    read_for(all, reader, reading, memory);
    progress.update(i + 1);
  }
}

void show_all(std::vector<Running>& all, const Reader& reader, const Text& text) {
  bool any = false;
  for (Running& one : all) {
    one.watches = one.analysis->reads_all();
    any |= one.watches;
  }
  if (!any) {
    return;
  }
  Progress progress("reading", text.tokens(), "tokens");
  std::int64_t done = 0;
  text.read_all([&](const Reading& reading, models::Memory& memory) {
    read_for(all, reader, reading, memory);
    done += reading.tokens.numel() + (reading.target.defined() ? reading.target.numel() : 0);
    progress.update(done);
  });
}

std::vector<std::string> names_of_all() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : analysis_kinds()) {
    names.emplace_back(name);
  }
  return names;
}

// Those that are asked for, or all that the model has, in the order of the page.
std::vector<const AnalysisKind*> chosen(const AnalyseRequest& request, const store::OpenedModel& opened) {
  const config::ModelOptions& o = opened.config().model;
  std::vector<const AnalysisKind*> all;
  for (const std::string& name : request.what) {
    const auto found = analysis_kinds().find(name);
    if (found == analysis_kinds().end()) {
      const std::string meant = nearest(name, names_of_all());
      misuse("analyse: --what: must be among {}, got {}{}", fmt::join(names_of_all(), ", "), printable(name),
             meant.empty() ? "" : "; did you mean " + meant + "?");
    }
    if (const std::string why = found->second.refusal(o); !why.empty()) {
      misuse("analyse: --what: {} has no {}: {}", printable(opened.name), name, why);
    }
    all.push_back(&found->second);
  }
  for (const auto& [name, kind] : analysis_kinds()) {
    if (request.what.empty() && kind.refusal(o).empty()) {
      all.push_back(&kind);
    }
  }
  std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->place < b->place; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

Analysed analyse(const store::OpenedModel& opened, const AnalyseRequest& request) {
  const Reader reader(opened);
  std::vector<Running> all;
  for (const AnalysisKind* kind : chosen(request, opened)) {
    all.push_back({.kind = kind, .analysis = kind->make(reader)});
  }
  const bool reads = std::any_of(all.begin(), all.end(), [](const Running& one) {
    return one.analysis->reads_all() || one.analysis->samples() > 0;
  });
  if (reads) {
    const std::unique_ptr<Text> text = open_text(opened, request.text);
    const bool shows =
        std::any_of(all.begin(), all.end(), [](const Running& one) { return one.analysis->samples() > 0; });
    if (shows && !request.text.text.empty() && text->samples() > 1) {
      models::Memory none;
      log_info("analyse: --text: is longer than the {} tokens that maps show", text->sample(0, none).tokens.size(1));
    }
    show_samples(all, reader, *text);
    show_all(all, reader, *text);
  }
  Analysed result{.name = opened.name, .step = opened.checkpoint.step, .analyses = {}};
  for (Running& one : all) {
    result.analyses.emplace_back(one.kind, one.analysis->finish(reader));
    one.analysis.reset();
  }
  return result;
}

}  // namespace headroom::inspect
