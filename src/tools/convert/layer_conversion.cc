#include "layer_conversion.h"

#include <fmt/format.h>

#include <memory>

#include "foundation/core/machine/log.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/mlp.h"
#include "start.h"

namespace headroom::convert {
namespace {

constexpr double kAttentionRate = 6e-3, kMlpRate = 1e-3;  // learning rates of the fit

std::string attention_of(std::int64_t layer) {
  return fmt::format("layer{}.attention", layer);
}
std::string mlp_of(std::int64_t layer) {
  return fmt::format("layer{}.ffn", layer);
}

LayerError logged(const std::string& place, const FitErrors& errors) {
  log_info("{}: error {:.4f} in closed form, {:.4f} fitted", place, errors.start, errors.fitted);
  return {.layer = place, .start = errors.start, .fitted = errors.fitted};
}

}  // namespace

LayerConversion::LayerConversion(const ConvertRequest& request, const models::Model& source,
                                 const models::Model& target, const Batches& batches)
    : request_(request),
      source_(source),
      target_(target),
      sequences_(batches.sequences),
      fit_(source, batches.fit),
      held_out_(source, batches.held_out) {}

bool LayerConversion::convert(std::int64_t layer, std::vector<LayerError>& errors) {
  const config::ModelOptions &from = source_.options(), &to = target_.options();
  const auto at_layer = [&]() -> LayerWalk& {
    fit_.go_to(layer);
    return fit_;
  };
  const bool same_attention = start_layer({.from = from.attention,
                                           .to = to.attention,
                                           .source = source_.parameters(),
                                           .target = target_.parameters(),
                                           .place = attention_of(layer),
                                           .sums = [&] { return collect_heads(at_layer()); },
                                           .covariance = [&] { return covariance_of(at_layer()); }});
  const bool same_mlp =
      !splits_mlp(from.mlp, to.mlp) || start_mlp({.from = from.mlp,
                                                  .to = to.mlp,
                                                  .source = source_.parameters(),
                                                  .target = target_.parameters(),
                                                  .place = mlp_of(layer),
                                                  .inputs = [&] { return collect_mlp(at_layer()).x.flatten(0, 1); }});
  if (request_.fit_steps > 0 && !(same_attention && same_mlp)) {
    fit_.go_to(layer);
    held_out_.go_to(layer);
    if (!same_attention) {
      errors.push_back(fit_attention(layer));
    }
    if (!same_mlp) {
      errors.push_back(fit_mlp(layer));
    }
  }
  return same_attention && same_mlp;
}

template <class Make>
auto LayerConversion::part(const std::string& place, std::vector<at::Tensor>& parameters, const Make& make) const {
  nn::Parameters own;  // shared handles
  const auto find = [&](const nn::Parameter& wanted) { return target_.parameters().at(wanted.name); };
  const nn::ParameterSource values(find, at::TensorOptions(at::kFloat));
  auto made = make(nn::Builder(own, values).in(place));
  for (const nn::Parameter& parameter : own.all()) {
    parameters.push_back(parameter.tensor);
    parameters.back().requires_grad_(true);
  }
  return made;
}

LayerError LayerConversion::fit_attention(std::int64_t layer) {
  std::vector<at::Tensor> parameters;
  const nn::Attention attention = part(attention_of(layer), parameters, [&](const nn::Builder& build) {
    return nn::Attention(target_.options().attention, place_of(target_.options(), layer), build);
  });
  const LayerActivations activations = collect_attention(fit_), held_out = collect_attention(held_out_);
  const auto output = [&](const LayerActivations& a) { return attention({.x = a.x, .source = a.source}, {}); };
  return logged(attention_of(layer),
                fit(output, parameters, activations, held_out, options_for(layer, kAttentionRate)));
}

LayerError LayerConversion::fit_mlp(std::int64_t layer) {
  const config::ModelOptions& o = target_.options();
  std::vector<at::Tensor> parameters;
  const std::unique_ptr<nn::Mlp> mlp = part(mlp_of(layer), parameters, [&](const nn::Builder& build) {
    return nn::make_mlp(o.mlp, {.d_model = o.d_model, .n_layers = o.n_layers}, build);
  });
  const LayerActivations activations = collect_mlp(fit_), held_out = collect_mlp(held_out_);
  const auto output = [&](const LayerActivations& a) { return (*mlp)(a.x, 0.0, {}); };
  return logged(mlp_of(layer), fit(output, parameters, activations, held_out, options_for(layer, kMlpRate)));
}

FitOptions LayerConversion::options_for(std::int64_t layer, double rate) const {
  return {.steps = request_.fit_steps,
          .sequences = sequences_,
          .learning_rate = rate,
          .seed = request_.seed + static_cast<std::uint64_t>(layer)};
}

}  // namespace headroom::convert
