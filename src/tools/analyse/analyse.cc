#include "analyse.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/config/field.h"
#include "headroom/core/error.h"

namespace headroom::analyse {

namespace {

bool have_alike_attention(const config::ModelOptions& a, const config::ModelOptions& b) {
  const std::vector<std::string> keys = config::differing_keys(a, b);
  return std::ranges::none_of(
      keys, [](const std::string& key) { return key.starts_with("model.attention.") && !config::sets_range(key); });
}

bool have_alike_routers(const config::MlpOptions& a, const config::MlpOptions& b) {
  const auto experts = [](const config::MlpOptions& mlp) {
    return mlp.kind == config::MlpKind::experts ? mlp.n_experts : 0;
  };
  return experts(a) == experts(b);
}

std::string name_of(const LayerGroup& group) {
  return fmt::format("layer{} {}", group.layers.size() == 1 ? "" : "s", fmt::join(group.layers, ", "));
}

}  // namespace

std::vector<LayerGroup> layer_groups(const config::ModelOptions& o) {
  const std::int64_t n = std::max(o.n_layers, o.decoder_layers());
  std::vector<LayerGroup> groups;
  bool alike = true;
  for (std::int64_t layer = 0; layer < n; ++layer) {
    const config::ModelOptions own = o.of_layer(layer);
    alike = alike && (groups.empty() || have_alike_attention(groups.front().options, own));
    const auto group = std::ranges::find_if(groups, [&](const LayerGroup& other) {
      return have_alike_attention(other.options, own) && have_alike_routers(other.options.mlp, own.mlp);
    });
    if (group == groups.end()) {
      groups.push_back({.layers = {layer}, .options = own});
    } else {
      group->layers.push_back(layer);
    }
  }
  if (!alike) {
    return groups;
  }
  LayerGroup all{.layers = {}, .options = o};
  for (std::int64_t layer = 0; layer < n; ++layer) {
    all.layers.push_back(layer);
  }
  all.options.attention = groups.front().options.attention;
  all.options.attention.window = o.attention.window;
  all.options.attention.window_pattern = o.attention.window_pattern;
  return {std::move(all)};
}

Findings joined(std::vector<std::pair<const LayerGroup*, Findings>> groups) {
  if (groups.size() == 1) {
    return std::move(groups.front().second);
  }
  Findings all;
  for (auto& [group, findings] : groups) {
    const std::string name = name_of(*group);
    all.metrics[name] = std::move(findings.metrics);
    all.tensors.merge(findings.tensors);
    for (Figure& figure : findings.figures) {
      figure.caption += fmt::format(" ({})", name);
      all.figures.push_back(std::move(figure));
    }
    all.summary += fmt::format("{}{}: {}", all.summary.empty() ? "" : "; ", name, findings.summary);
  }
  return all;
}

namespace {

std::map<std::string_view, AnalysisKind>& registered() {
  static std::map<std::string_view, AnalysisKind> all;
  return all;
}

struct RunningAnalysis {
  const AnalysisKind* kind;
  const LayerGroup* group;
  const ModelRunner* runner;  // of the group
  std::unique_ptr<Analysis> analysis;
  bool active = false;  // takes part in the current pass
};

// Passes each value to the active analyses that want it.
class AnalysesObserver : public nn::Observer {
 public:
  AnalysesObserver(std::vector<RunningAnalysis>& all, const InputBatch& input) : all_(all), input_(input) {}
  bool wants(std::string_view name) const override {
    return std::ranges::any_of(all_, [&](const RunningAnalysis& one) { return wanted(one, name); });
  }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    for (RunningAnalysis& one : all_) {
      if (wanted(one, name)) {
        one.analysis->observe_value(name, value, input_);
      }
    }
    return value;
  }

 private:
  bool wanted(const RunningAnalysis& one, std::string_view name) const {
    return one.active && one.analysis->wants(name, input_) &&
           (name.find("layer") == std::string_view::npos || one.runner->includes(layer_index(name)));
  }

  std::vector<RunningAnalysis>& all_;
  const InputBatch& input_;
};

void run_pass(std::vector<RunningAnalysis>& all, const ModelRunner& runner, const InputBatch& input,
              models::Memory& memory) {
  stop_if_interrupted();
  for (RunningAnalysis& one : all) {
    if (one.active) {
      one.analysis->begin_pass(input);
    }
  }
  AnalysesObserver observer(all, input);
  runner.forward(input, memory, observer);
  for (RunningAnalysis& one : all) {
    if (one.active) {
      one.analysis->end_pass(input);
    }
  }
}

// Returns up to `n` evenly spaced indices in [0, available), starting with 0.
std::set<std::int64_t> spread(std::int64_t n, std::int64_t available) {
  std::set<std::int64_t> samples;
  n = std::min(n, available);
  for (std::int64_t i = 0; i < n; ++i) {
    samples.insert(i * available / n);
  }
  return samples;
}

// The samples of an analysis do not depend on which other analyses run.
void run_samples(std::vector<RunningAnalysis>& all, const ModelRunner& runner, const InputText& text,
                 std::int64_t replacement) {
  std::vector<std::set<std::int64_t>> wanted;
  std::set<std::int64_t> any;
  for (const RunningAnalysis& one : all) {
    const std::int64_t own = one.analysis->samples();
    wanted.push_back(spread(own > 1 && replacement > 0 ? replacement : own, text.samples()));
    any.insert(wanted.back().begin(), wanted.back().end());
  }
  if (any.empty()) {
    return;
  }
  Progress progress("running samples", std::ssize(any), "sequences");
  std::int64_t done = 0;
  for (const std::int64_t sample : any) {
    models::Memory memory;
    const InputBatch input = text.sample(sample, memory);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].active = wanted[i].contains(sample);
    }
    run_pass(all, runner, input, memory);
    progress.update(++done);
  }
}

void run_all_text(std::vector<RunningAnalysis>& all, const ModelRunner& runner, const InputText& text) {
  bool any = false;
  for (RunningAnalysis& one : all) {
    one.active = one.analysis->wants_all_text();
    any |= one.active;
  }
  if (!any) {
    return;
  }
  Progress progress("running the text", text.tokens(), "tokens");
  std::int64_t done = 0;
  text.for_each_batch([&](const InputBatch& input, models::Memory& memory) {
    run_pass(all, runner, input, memory);
    done += input.n_tokens();
    progress.update(done);
  });
}

std::vector<std::string> names_of_all() {
  return transformed(analysis_kinds(), [](const auto& entry) { return std::string(entry.first); });
}

// Returns the reason why the analysis does not apply to a group of layers; empty if it applies.
std::string refusal(const AnalysisKind& kind, const config::ModelOptions& o) {
  if (kind.reads_text && !o.reads_tokens()) {
    return fmt::format("it reads text, but a model of kind {} does not", config::name_of(o.kind));
  }
  if (!o.attention.has_heads() && kind.name != "experts") {
    return "it looks at attention, which the layers lack (attention.n_heads = 0)";
  }
  return kind.refusal(o);
}

// Returns the same for all groups.
std::string refusal(const AnalysisKind& kind, const std::vector<LayerGroup>& groups) {
  const bool applies =
      std::ranges::any_of(groups, [&](const LayerGroup& group) { return refusal(kind, group.options).empty(); });
  return applies ? "" : refusal(kind, groups.front().options);
}

// Returns the requested analyses in the order of the page; if none is requested, all that are useful for the model.
std::vector<const AnalysisKind*> select_analyses(const AnalyseRequest& request, const config::ModelOptions& o,
                                                 const std::string& model) {
  const std::vector<LayerGroup> groups = layer_groups(o);
  std::vector<const AnalysisKind*> all;
  for (const std::string& name : request.what) {
    const auto found = analysis_kinds().find(name);
    if (found == analysis_kinds().end()) {
      const std::string meant = nearest(name, names_of_all());
      user_error("analyse: --what: must be among {}, got {}{}", fmt::join(names_of_all(), ", "), printable(name),
                 meant.empty() ? "" : "; did you mean " + meant + "?");
    }
    if (const std::string why = refusal(found->second, groups); !why.empty()) {
      user_error("analyse: --what: {} does not apply to {}: {}", name, printable(model), why);
    }
    all.push_back(&found->second);
  }
  for (const auto& [name, kind] : analysis_kinds()) {
    const bool useful = std::ranges::any_of(groups, [&](const LayerGroup& group) {
      return refusal(kind, group.options).empty() && (kind.by_default == nullptr || kind.by_default(group.options));
    });
    if (request.what.empty() && useful) {
      all.push_back(&kind);
    }
  }
  if (request.key && std::ranges::none_of(all, [](const auto* one) { return one->name == "composition"; })) {
    user_error("analyse: --key: needs composition, which is not among the analyses of {}; add it to --what",
               printable(model));
  }
  std::ranges::sort(all, [](const auto* a, const auto* b) { return a->order < b->order; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

const std::map<std::string_view, AnalysisKind>& analysis_kinds() {
  return registered();
}

AnalysisRegistration::AnalysisRegistration(const AnalysisKind& kind) {
  registered().emplace(kind.name, kind);
}

void require_analyses(const AnalyseRequest& request, const config::ModelOptions& options, const std::string& model) {
  select_analyses(request, options, model);
}

ModelFindings analyse(const store::OpenedModel& opened, const AnalyseRequest& request) {
  const ModelRunner runner(opened);
  const std::vector<LayerGroup> groups = layer_groups(opened.config().model);
  std::vector<ModelRunner> runners;
  for (const LayerGroup& group : groups) {
    runners.emplace_back(opened, groups.size() == 1 ? std::vector<std::int64_t>() : group.layers, group.options);
  }
  std::vector<RunningAnalysis> all;
  for (const AnalysisKind* kind : select_analyses(request, opened.config().model, opened.name)) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (refusal(*kind, groups[i].options).empty()) {
        all.push_back(
            {.kind = kind, .group = &groups[i], .runner = &runners[i], .analysis = kind->make(runners[i], request)});
      }
    }
  }
  if (request.samples > 0 &&
      std::ranges::none_of(all, [](const RunningAnalysis& one) { return one.analysis->samples() > 1; })) {
    user_error(
        "analyse: --samples: no analysis of {} averages over samples; add rank, composition, importance or mixture to "
        "--what",
        printable(opened.name));
  }
  const bool needs_samples =
      std::ranges::any_of(all, [](const RunningAnalysis& one) { return one.analysis->samples() > 0; });
  const bool needs_text =
      std::ranges::any_of(all, [](const RunningAnalysis& one) { return one.analysis->wants_all_text(); });
  if (needs_samples || needs_text) {
    const std::unique_ptr<InputText> text = open_text(opened, request.text);
    if (needs_samples && !request.text.text.empty()) {
      models::Memory none;
      if (const std::int64_t first = text->sample(0, none).n_tokens(); first < text->tokens()) {
        log_info("analyse: --text: attention maps show the first {} of {} tokens", first, text->tokens());
      }
    }
    run_samples(all, runner, *text, request.samples);
    run_all_text(all, runner, *text);
  }
  ModelFindings result{.name = opened.name, .step = opened.checkpoint.step, .analyses = {}};
  for (std::size_t i = 0; i < all.size();) {
    const AnalysisKind* const kind = all[i].kind;
    std::vector<std::pair<const LayerGroup*, Findings>> found;
    for (; i < all.size() && all[i].kind == kind; ++i) {
      found.emplace_back(all[i].group, all[i].analysis->finish(*all[i].runner));
      all[i].analysis.reset();
    }
    result.analyses.emplace_back(kind, joined(std::move(found)));
  }
  return result;
}

}  // namespace headroom::analyse
