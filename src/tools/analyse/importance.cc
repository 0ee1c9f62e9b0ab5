// The importance of dynamic composition by layer (DCMHA, section 4.3): the rise of the loss if a layer composes its
// heads by the fixed map alone, without the terms that depend on the query and the key.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>

#include "analyse.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "model_runner.h"

namespace headroom::analyse {
namespace {

constexpr std::int64_t kImportanceSamples = 4;

// Replaces one layer's composed scores and weights by those that its fixed maps alone give.
class WithoutDynamicTerms : public nn::Observer {
 public:
  WithoutDynamicTerms(std::string layer, const config::AttentionOptions& options)
      : layer_(std::move(layer)), options_(options) {}

  bool wants(std::string_view name) const override {
    constexpr std::array<std::string_view, 2> kMaps = {"query_terms", "query_map"};
    const std::string_view value = value_of(name);
    return layer_of(name) == layer_ && (std::ranges::find(kMaps, value) != kMaps.end() ||
                                        std::ranges::find(nn::kPairValues, value) != nn::kPairValues.end());
  }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    const std::string_view what = value_of(name);
    if (what == "scores_composed" || what == "probs_composed") {
      const bool pre = what == "scores_composed";
      const auto& own = options_.of<config::CompositionOptions>();
      if (!own.composes(pre ? "pre" : "post")) {
        return value;
      }
      const std::int64_t stage = !pre && own.composes("pre") ? 1 : 0;
      // The fixed map is the same for all queries.
      const at::Tensor fixed = (terms_.at("query_map") - terms_.at("query_terms").sum(3)).select(2, stage)[0][0];
      return at::einsum("bhts,hn->bnts", {before_.to(fixed.scalar_type()), fixed}).to(value.scalar_type());
    }
    if (what == "scores" || what == "probs") {
      before_ = value;
    } else {
      terms_[std::string(what)] = value;
    }
    return value;
  }

 private:
  std::string layer_;
  const config::AttentionOptions& options_;
  at::Tensor before_;                        // scores or weights before composition
  std::map<std::string, at::Tensor> terms_;  // of the queries
};

class ImportanceAnalysis : public Analysis {
 public:
  explicit ImportanceAnalysis(const ModelRunner& runner) : runner_(runner) {}

  std::int64_t samples() const override { return kImportanceSamples; }

  void end_pass(const InputBatch& input) override {
    const at::NoGradGuard no_graph;
    if (input.tokens.size(1) < 2) {
      return;
    }
    add_loss("", input, nullptr);
    for (const AttentionLayer& layer : runner_.attention_layers()) {
      stop_if_interrupted();
      WithoutDynamicTerms observer(layer.name, runner_.options().attention);
      add_loss(layer.name, input, &observer);
    }
    tokens_ += input.tokens.size(1) - 1;
  }

  Findings finish(const ModelRunner& runner) override {
    Findings found;
    if (tokens_ == 0) {
      found.summary = "the text has no second token to predict";
      return found;
    }
    const auto loss_without = [&](const std::string& layer) { return sums_.at(layer) / static_cast<double>(tokens_); };
    const double loss = loss_without("");
    found.metrics["loss"] = loss;
    found.metrics["tokens"] = tokens_;
    std::string most;
    double largest = 0.0;
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const double rise = loss_without(layer.name) - loss;
      found.metrics["rise"][layer.name] = rise;
      if (most.empty() || rise > largest) {
        most = layer_of(layer.name);
        largest = rise;
      }
    }
    std::vector<std::vector<Json>> rows;
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const double rise = found.metrics["rise"][layer.name];
      rows.push_back({layer_of(layer.name),
                      fmt::format("{:.4f}", loss + rise),
                      fmt::format("{:+.4f}", rise),
                      {{"text", ""}, {"bar", {largest > 0.0 ? rise / largest : 0.0, 0}}}});
    }
    found.figures.push_back(
        {.caption = "importance of composition by layer",
         .remark = fmt::format("the loss of {} tokens, {:.4f}, if one layer composes its heads by its fixed map alone",
                               tokens_, loss),
         .blocks = Json::array({table_of({"layer", "loss", "rise", "rise as a share of the largest"}, rows)})});
    found.summary =
        fmt::format("the loss, {:.4f}, rises most without the dynamic terms of {}: by {:+.4f}", loss, most, largest);
    return found;
  }

 private:
  // Adds the model's loss without the dynamic terms of `layer`, or with all terms if `layer` is empty.
  void add_loss(const std::string& layer, const InputBatch& input, nn::Observer* observer) {
    const std::int64_t targets = input.tokens.size(1) - 1;
    const at::Tensor logits = runner_.logits(input, observer).narrow(1, 0, targets).flatten(0, 1).to(at::kDouble);
    const at::Tensor next = input.tokens.narrow(1, 1, targets).flatten().to(logits.device());
    sums_[layer] += at::cross_entropy_loss(logits, next, {}, at::Reduction::Sum).item<double>();
  }

  ModelRunner runner_;
  std::map<std::string, double> sums_;  // of the loss, by layer
  std::int64_t tokens_ = 0;
};

std::string refuse_without_dynamic_terms(const config::ModelOptions& options) {
  const auto& own = options.attention.of<config::CompositionOptions>();
  if (options.attention.composition != "dynamic" || (own.compose_low_rank.empty() && own.compose_gates.empty())) {
    return fmt::format("its heads are not composed dynamically (composition \"{}\")",
                       options.attention.composition.name());
  }
  return refuse_all_but_language_models(options);
}

const AnalysisRegistration kImportance({.name = "importance",
                                        .order = 9,
                                        .about = "How much the loss rises without the dynamic terms of each layer.",
                                        .refusal = refuse_without_dynamic_terms,
                                        .make = make_analysis<ImportanceAnalysis>});

}  // namespace
}  // namespace headroom::analyse
