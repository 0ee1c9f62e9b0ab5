#include "analyse.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "layers.h"
#include "text.h"

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

// The samples of an analysis that asks for `wanted` of the `there` that there are: the first, and others spread evenly.
std::set<std::int64_t> spread(std::int64_t wanted, std::int64_t there) {
  std::set<std::int64_t> samples;
  wanted = std::min(wanted, there);
  for (std::int64_t i = 0; i < wanted; ++i) {
    samples.insert(i * there / wanted);
  }
  return samples;
}

// Each analysis sees the samples that it would see alone.
void show_samples(std::vector<Running>& all, const Reader& reader, const Text& text) {
  std::vector<std::set<std::int64_t>> wanted;
  std::set<std::int64_t> any;
  for (const Running& one : all) {
    wanted.push_back(spread(one.analysis->samples(), text.samples()));
    any.insert(wanted.back().begin(), wanted.back().end());
  }
  if (any.empty()) {
    return;
  }
  Progress progress("looking", std::ssize(any), "sequences");
  std::int64_t done = 0;
  for (const std::int64_t sample : any) {
    models::Memory memory;
    const Reading reading = text.sample(sample, memory);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].watches = wanted[i].contains(sample);
    }
    read_for(all, reader, reading, memory);
    progress.update(++done);
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
    done += reading.n_tokens();
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
std::vector<const AnalysisKind*> chosen(const std::vector<std::string>& what, const config::ModelOptions& o,
                                        const std::string& model) {
  std::vector<const AnalysisKind*> all;
  for (const std::string& name : what) {
    const auto found = analysis_kinds().find(name);
    if (found == analysis_kinds().end()) {
      const std::string meant = nearest(name, names_of_all());
      user_error("analyse: --what: must be among {}, got {}{}", fmt::join(names_of_all(), ", "), printable(name),
                 meant.empty() ? "" : "; did you mean " + meant + "?");
    }
    if (const std::string why = found->second.refusal(o); !why.empty()) {
      user_error("analyse: --what: {} has no {}: {}", printable(model), name, why);
    }
    all.push_back(&found->second);
  }
  for (const auto& [name, kind] : analysis_kinds()) {
    if (what.empty() && kind.refusal(o).empty()) {
      all.push_back(&kind);
    }
  }
  std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->place < b->place; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

void require_analyses(const std::vector<std::string>& what, const config::ModelOptions& options,
                      const std::string& model) {
  chosen(what, options, model);
}

Analysed analyse(const store::OpenedModel& opened, const AnalyseRequest& request) {
  const Reader reader(opened);
  std::vector<Running> all;
  for (const AnalysisKind* kind : chosen(request.what, opened.config().model, opened.name)) {
    all.push_back({.kind = kind, .analysis = kind->make(reader)});
  }
  const bool reads = std::any_of(all.begin(), all.end(), [](const Running& one) {
    return one.analysis->reads_all() || one.analysis->samples() > 0;
  });
  if (reads) {
    const std::unique_ptr<Text> text = open_text(opened, request.text);
    const bool shows =
        std::any_of(all.begin(), all.end(), [](const Running& one) { return one.analysis->samples() > 0; });
    if (shows && !request.text.text.empty()) {
      models::Memory none;
      if (const std::int64_t first = text->sample(0, none).n_tokens(); first < text->tokens()) {
        log_info("analyse: --text: maps show its first {} of {} tokens", first, text->tokens());
      }
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
