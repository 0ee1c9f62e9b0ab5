#include "inspector.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "attribution.h"
#include "foundation/core/machine/log.h"
#include "foundation/draw/page.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/language_model.h"
#include "packing.h"
#include "predictions.h"
#include "tools/analyse/model_runner.h"

namespace headroom::inspector {
namespace {

constexpr std::int64_t kThumbnail = 64;  // side in pixels
constexpr std::int64_t kLikeliest = 10;  // tokens kept per prediction
constexpr double kMapShare = 0.62;       // share of the bytes used for maps

// Collects the values of one attention layer at a time, passes them to a callback and discards them.
class LayerObserver : public nn::Observer {
 public:
  using OnLayer = std::function<void(std::int64_t layer, const LayerValues& values)>;

  LayerObserver(const config::ModelOptions& options, OnLayer on_layer) : on_layer_(std::move(on_layer)) {
    for (std::int64_t layer = 0; layer < options.n_layers; ++layer) {
      for (const std::string& name : attributed_values(options.of_layer(layer).attention)) {
        patterns_.push_back(fmt::format("layer{}.attention.{}", layer, name));
      }
    }
  }
  bool wants(std::string_view name) const override {
    return name == "embedding" || nn::matches("layer*.ffn.out", name) ||
           std::ranges::any_of(patterns_, [&](const std::string& pattern) { return nn::matches(pattern, name); });
  }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    if (name == "embedding") {
      embedding = value[0];
    } else if (name.ends_with(".ffn.out")) {
      mlp.push_back(value[0]);
    } else {
      const std::string_view inside = name.substr(name.find('.') + 1);
      values_[std::string(inside.substr(inside.find('.') + 1))] = value;
      if (inside == "attention.out") {
        on_layer_(layer_++, values_);
        values_.clear();
      }
    }
    return value;
  }

  at::Tensor embedding;
  std::vector<at::Tensor> mlp;  // MLP outputs by layer, [T, d]

 private:
  std::vector<std::string> patterns_;
  OnLayer on_layer_;
  LayerValues values_;
  std::int64_t layer_ = 0;
};

// Returns an upper bound for the difference of a logit and the sum of its contributions, relative to the sum of their
// absolute values.
double rounding_error(at::ScalarType compute_type) {
  return compute_type == at::kBFloat16 ? 0x1p-4 : 0x1p-16;
}

class Inspector {
 public:
  Inspector(const models::Model& model, const at::Tensor& ids, const InspectLimits& limits)
      : model_(model),
        classifier_(dynamic_cast<const models::Classifier*>(&model)),
        options_(model.options()),
        ids_(ids),
        limits_(limits) {
    if (limits.show_progress) {
      progress_.emplace("inspecting", options_.n_layers, "layers");
    }
  }

  Inspection run(const nn::Context& context) {
    const models::LanguageModel* language =
        classifier_ == nullptr ? &models::as_language_model(model_, "inspect") : nullptr;
    if (language != nullptr) {
      predictions_ = predict(*language, ids_, context, kLikeliest);
    }
    LayerObserver observer(options_, [&](std::int64_t layer, const LayerValues& values) { add_layer(layer, values); });
    nn::Context inner = context;
    ObserverChain both(context.observer, observer);
    inner.observer = &both;
    if (language != nullptr) {
      models::Memory memory;
      language->score(ids_.unsqueeze(0), at::full({1, ids_.size(0)}, -1, at::kLong), memory, inner);
      add_predictions();
      if (context.observer != nullptr) {
        add_changes(changes_of_predictions(*language, ids_, context, kLikeliest));
      }
      add_logits(observer, context.compute_dtype.value_or(at::kFloat));
    } else {
      models::Batch batch;
      batch.tensors["tokens"] = ids_.unsqueeze(0);
      result_.about["classes"] =
          analyse::to_vector(classifier_->class_logits(batch, inner)[0].to(at::kDouble).softmax(-1));
    }
    result_.packed.push_back({"thumbnails", draw::deflated(bytes_of(at::stack(thumbnails_), at::kByte))});
    describe();
    return std::move(result_);
  }

 private:
  void pack(std::string name, const std::string& bytes) {
    result_.packed.push_back({std::move(name), draw::deflated(bytes)});
  }

  // The bytes per map of a layer, and the contributions to keep per token if each has `n_terms` terms.
  std::int64_t map_bytes(std::int64_t n_maps) const {
    return static_cast<std::int64_t>(kMapShare * static_cast<double>(limits_.bytes)) / (options_.n_layers * n_maps);
  }
  std::int64_t contributions(std::int64_t n_terms) const {
    constexpr double kShareOfRest = 0.55;                  // the remainder is for predictions and routing
    constexpr double kEntryBytes = 6.0, kTermBytes = 2.0;  // estimated, compressed
    const double bytes = (1.0 - kMapShare) * kShareOfRest * static_cast<double>(limits_.bytes);
    const double one = kEntryBytes + kTermBytes * static_cast<double>(n_terms);
    const auto fit = static_cast<std::int64_t>(bytes / (one * static_cast<double>(ids_.size(0) * options_.n_layers)));
    return std::clamp<std::int64_t>(fit, 4, limits_.most_contributions);
  }

  void add_layer(std::int64_t layer, const LayerValues& values) {
    limits_.check ? limits_.check() : analyse::stop_if_interrupted();
    const config::AttentionOptions options = options_.of_layer(layer).attention;
    const std::string scope = fmt::format("layer{}.attention.", layer % options_.distinct_layers());
    const Attribution a = attribute(values, {.options = options,
                                             .parameters = model_.parameters(),
                                             .scope = scope,
                                             .causal = causal(),
                                             .window = options.window});
    const bool composed = a.post.has_value();
    const std::int64_t heads = a.weights.size(0), n_maps = heads * (composed ? 2 : 1);
    for (std::int64_t h = 0; h < heads; ++h) {
      thumbnails_.push_back(thumbnail(a.weights[h], kThumbnail));
      result_.packed.push_back(
          {fmt::format("map.{}.{}", layer, h), pack_map(a.weights[h], map_bytes(n_maps), causal())});
      if (composed) {
        result_.packed.push_back(
            {fmt::format("before.{}.{}", layer, h), pack_map(a.probs[h], map_bytes(n_maps), causal())});
      }
    }
    const PackedContributions packed = pack_contributions(a, contributions(n_terms_of(a)));
    pack(fmt::format("contributions.{}", layer), packed.bytes);
    layers_.push_back(packed.about);
    layers_.back().update(about_layer(options));
    layers_.back().update({{"heads", heads}, {"composed", composed}, {"routers", pack_routing(layer, values)}});
    if (progress_) {
      progress_->update(layer + 1);
    }
    if (predictions_.linear) {
      const std::vector<at::Tensor> directions(predictions_.direction.begin(), predictions_.direction.end());
      direct_.push_back(direct_logits(a, directions, attributed_experts(options)));
    }
  }

  // Returns the number of terms of one contribution and its score.
  static std::int64_t n_terms_of(const Attribution& a) {
    std::int64_t n = a.pre ? std::ssize(a.pre->names) : 0;
    for (const Decomposition& one : decompose_weights(a, 0, 1)) {
      n += std::ssize(one.terms);
    }
    return n;
  }

  // Returns what the page needs to know about a layer's settings.
  static Json about_layer(const config::AttentionOptions& a) {
    return {{"window", a.window},
            {"slots", !a.projection->has_fixed_heads()},
            {"pairs", a.score->has_scores()},  // whether single weights can be ablated
            {"experts", attributed_experts(a)},
            {"expert_heads", a.projection->heads_per_expert(a)},
            {"parts",
             {{"projection", a.projection.name()},
              {"heads", a.projection->heads_text(a)},
              {"score", a.score.name()},
              {"composition", a.composition.name()},
              {"position", a.position.name()},
              {"output gate", a.gate_output.name()}}}};
  }

  // Packs index and weight [T, heads, K] of each router. Returns [{"name", "heads", "top_k"}].
  Json pack_routing(std::int64_t layer, const LayerValues& values) {
    Json names = Json::array();
    for (const char* name : {"select", "select_in", "select_out"}) {
      const auto index = values.find(std::string(name) + ".index"), weight = values.find(std::string(name) + ".weight");
      if (index == values.end() || weight == values.end()) {
        continue;
      }
      pack(fmt::format("{}.{}", name, layer),
           uint16_bytes(index->second) + bytes_of(weight->second.to(at::kFloat), at::kHalf));
      names.push_back({{"name", name}, {"heads", index->second.size(1)}, {"top_k", index->second.size(2)}});
    }
    return names;
  }

  void add_predictions() {
    const Predictions& p = predictions_;
    pack("predictions", bytes_of(p.likeliest, at::kInt) + bytes_of(p.probability, at::kFloat) +
                            bytes_of(p.next_probability, at::kFloat) + bytes_of(p.next_rank, at::kInt) +
                            bytes_of(p.entropy, at::kFloat));
    name_tokens(p.likeliest);
  }

  void add_changes(const PredictionChanges& changes) {
    pack("changes", bytes_of(changes.divergence, at::kFloat) + bytes_of(changes.token, at::kInt) +
                        bytes_of(changes.before, at::kFloat) + bytes_of(changes.after, at::kFloat));
    result_.about["changes"] = changes.token.size(1);
    name_tokens(changes.token);
  }

  void name_tokens(const at::Tensor& ids) {
    const at::Tensor all = ids.flatten().contiguous();
    std::set<std::int64_t> names(result_.vocabulary.begin(), result_.vocabulary.end());
    names.insert(all.const_data_ptr<std::int64_t>(), all.const_data_ptr<std::int64_t>() + all.numel());
    result_.vocabulary.assign(names.begin(), names.end());
  }

  // Adds "logits" and "logit_experts.l" as inspector.h describes them.
  void add_logits(const LayerObserver& observer, at::ScalarType compute_type) {
    if (!predictions_.linear) {
      return;
    }
    std::string bytes;
    double worst = 0.0, largest = 0.0;
    for (std::size_t target = 0; target < Predictions::kTargets; ++target) {
      const at::Tensor& direction = predictions_.direction[target];
      const auto along = [&](const at::Tensor& added) { return (added.to(at::kFloat) * direction).sum(-1, true); };
      std::vector<at::Tensor> columns = {predictions_.logit[target].unsqueeze(1), along(observer.embedding),
                                         predictions_.constant[target].unsqueeze(1)};
      for (std::size_t layer = 0; layer < direct_.size(); ++layer) {
        const DirectLogits& direct = direct_[layer][target];
        columns.insert(columns.end(), {direct.heads, direct.bias.unsqueeze(1), along(observer.mlp[layer])});
      }
      const at::Tensor table = at::cat(columns, 1);
      const at::Tensor sum = table.slice(1, 1).sum(1);
      largest = std::max(largest, table.slice(1, 1).abs().sum(1).max().item<double>());
      worst = std::max(worst, (sum - table.select(1, 0)).abs().max().item<double>());
      bytes += bytes_of(table, at::kFloat);
    }
    pack("logits", bytes);
    result_.about["logit_error"] = worst;
    if (!(worst <= rounding_error(compute_type) * largest)) {
      log_warning(
          "inspect: the contributions add up to logits that differ from the model's by {:.2g}, more than rounding "
          "explains; do not trust this page, and report the model's config as a fault of Headroom",
          worst);
    }
    for (std::size_t layer = 0; layer < direct_.size(); ++layer) {
      const DirectLogits& one = direct_[layer][0];
      layers_[layer]["value_experts"] = one.value_experts.size(2);
      layers_[layer]["output_experts"] = one.output_experts.size(2);
      if (one.value_experts.size(2) + one.output_experts.size(2) == 0) {
        continue;
      }
      std::string experts;
      for (const DirectLogits& direct : direct_[layer]) {
        experts += bytes_of(at::cat({direct.value_experts, direct.output_experts}, 2), at::kHalf);
      }
      pack(fmt::format("logit_experts.{}", layer), experts);
    }
  }

  void describe() {
    Json& about = result_.about;
    about["layers"] = std::move(layers_);
    about["tokens"] = ids_.size(0);
    about["thumbnail"] = thumbnails_.front().size(0);
    about["causal"] = causal();
    about["likeliest"] = classifier_ == nullptr ? predictions_.likeliest.size(1) : 0;
    about["logits"] = predictions_.linear;
    about["d_model"] = options_.d_model;
  }

  bool causal() const { return classifier_ == nullptr; }

  const models::Model& model_;
  const models::Classifier* classifier_;  // null: a language model
  const config::ModelOptions& options_;
  at::Tensor ids_;
  InspectLimits limits_;
  Predictions predictions_;
  Inspection result_;
  Json layers_ = Json::array();
  std::vector<at::Tensor> thumbnails_;
  std::vector<std::vector<DirectLogits>> direct_;  // by layer, by target
  std::optional<Progress> progress_;
};

}  // namespace

void require_inspectable(const config::ModelOptions& options) {
  if (options.kind != config::ModelKind::language_model && options.kind != config::ModelKind::classifier) {
    user_error("inspect: model.kind: must be language_model or classifier, got {}", config::name_of(options.kind));
  }
  for (const auto& [layer, count] : options.kinds_of_layers(options.n_layers)) {
    const config::AttentionOptions& a = layer.attention;
    if (!a.has_heads() || layer.mlp.kind == config::MlpKind::none) {
      user_error("inspect: model.{}: must not be {}: the page draws the attention and the MLP of every layer",
                 a.has_heads() ? "mlp.kind" : "attention.n_heads", a.has_heads() ? "none" : "0");
    }
    if (a.score->is_recurrent() && a.has_experts('v')) {
      user_error("inspect: model.attention.score: must not be {} with experts for values, which pass a convolution",
                 a.score.name());
    }
  }
  if (options.kind == config::ModelKind::classifier && options.paired) {
    user_error("inspect: model.paired: must be false, the page shows single texts; use `headroom analyse` for pairs");
  }
}

Inspection inspect_text(const models::Model& model, const std::vector<std::int32_t>& ids, const nn::Context& context,
                        const InspectLimits& limits) {
  const at::NoGradGuard no_grad;
  require_inspectable(model.options());
  const std::int64_t longest = model.options().context_length;
  if (ids.empty()) {
    user_error("inspect: the text is empty; the model needs at least one token");
  }
  if (std::ssize(ids) > longest) {
    user_error("inspect: the text has {} tokens; the model reads at most {} (model.context_length)", ids.size(),
               longest);
  }
  const at::Tensor tokens = at::tensor(std::vector<std::int64_t>(ids.begin(), ids.end()), at::kLong).to(model.device());
  return Inspector(model, tokens, limits).run(context);
}

}  // namespace headroom::inspector
