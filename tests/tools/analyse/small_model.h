// Small byte-level models with random parameters.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <memory>

#include "foundation/core/machine/log.h"
#include "headroom/store/open_model.h"
#include "one_thread.h"
#include "tiny/options.h"
#include "tools/analyse/analyse.h"

namespace headroom::analyse::small {

inline const bool kQuiet = (set_log_level(LogLevel::warning), true);  // no progress bars

// Returns small options with these keys of [model].
inline config::ModelOptions small_options(const std::string& keys = "") {
  // 260 ids: bytes and special tokens.
  config::ModelOptions o =
      tiny::changed(tiny::model(), "", "vocabulary_size=260 context_length=12 attention.position=none " + keys);
  o.n_classes = o.has_classes() && o.n_classes == 0 ? 3 : o.n_classes;
  return o;
}

// The model has two layers with two heads of width 8, and options for experts.
inline config::ModelOptions two_layers(std::int64_t vocabulary, std::int64_t context) {
  config::ModelOptions o =
      tiny::model({.vocabulary = vocabulary, .d_model = 16, .context_length = context, .d_head = 8, .d_hidden = 24});
  o.attention.of<config::RoutingOptions>().n_experts = 3;
  o.attention.of<config::RoutingOptions>().top_k = 2;
  return o;
}

// Selects two experts per token, each a group of two heads.
inline void set_groups_of_heads(config::AttentionOptions& o, bool biases = true) {
  o.projection = "routed_heads";
  o.n_heads = 4;
  o.n_kv_heads = 2;
  o.bias = biases;
  o.of<config::RoutedHeadOptions>().output_bias = biases;
}

// Selects a projection, with as many heads as it needs.
inline void set_projection(config::AttentionOptions& o, const std::string& projection) {
  if (projection == "groups of heads") {
    set_groups_of_heads(o, /*biases=*/false);
    return;
  }
  o.projection = projection;
  if (projection == "shared_and_routed") {
    o.n_heads = 4;
  } else if (projection == "routed_queries") {
    o.n_heads = 6;
    o.n_kv_heads = 2;
  }
}

// Returns all projections.
inline const std::vector<std::string> kProjections = {"dense",       "experts", "routed_heads",   "groups of heads",
                                                      "gated_heads", "latent",  "routed_queries", "shared_and_routed",
                                                      "factored",    "tied"};

// Adds noise to all parameters, so that terms initialised to 0 matter.
inline store::OpenedModel small_model(const config::ModelOptions& options, double noise = 0.3) {
  store::OpenedModel opened;
  opened.name = "small";
  opened.checkpoint.config.model = options;
  if (!options.has_classes()) {  // checkpoints of classifiers have no tokenizer
    opened.checkpoint.tokenizer = tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "", "test");
  }
  opened.model = models::make_model(options, 7);
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{4});
  for (const nn::Parameter& p : opened.model->parameters().all()) {
    p.tensor.requires_grad_(false);
    if (p.name.find("prior") == std::string::npos) {
      p.tensor.add_(at::randn(p.tensor.sizes(), generator, p.tensor.options()) * noise);
    }
  }
  return opened;
}

inline store::OpenedModel small_model(const std::string& keys, double noise = 0.3) {
  return small_model(small_options(keys), noise);
}

// Runs one analysis; `more` has its settings.
inline Findings found(const store::OpenedModel& opened, const std::string& what, const std::string& text,
                      AnalyseRequest more = {}) {
  more.what = {what};
  more.text.text = text;
  ModelFindings all = analyse(opened, more);
  return std::move(all.analyses.front().second);
}

// Returns the intermediate values of a forward pass over the text.
inline nn::Recorder recorded(const store::OpenedModel& opened, const std::string& text) {
  const ModelRunner runner(opened);
  const std::vector<std::int32_t> ids = runner.tokenizer().encode(text);
  InputBatch input;
  input.tokens = at::tensor(ids, at::kInt).to(at::kLong).unsqueeze(0);
  nn::Recorder recorder({"*.*.*", "*.*.*.*", "*.*"});
  models::Memory none;
  runner.forward(input, none, recorder);
  return recorder;
}

}  // namespace headroom::analyse::small
