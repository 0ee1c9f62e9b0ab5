#include "layer_conversion.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "engine/nn/linear.h"
#include "foundation/core/machine/log.h"
#include "headroom/nn/mlp.h"
#include "start.h"

namespace headroom::convert {
namespace {

constexpr double kAttentionRate = 6e-3, kMlpRate = 1e-3;  // learning rates of the fit

std::string attention_name(std::int64_t layer) {
  return fmt::format("layer{}.attention", layer);
}
std::string mlp_of(std::int64_t layer) {
  return fmt::format("layer{}.ffn", layer);
}

// Returns the first layer whose activations are needed for `layer` or a later layer.
std::int64_t first_needed(const std::vector<std::int64_t>& owners, std::int64_t layer) {
  std::int64_t first = layer;
  for (std::size_t later = static_cast<std::size_t>(layer); later < owners.size(); ++later) {
    first = owners[later] < 0 ? first : std::min(first, owners[later]);
  }
  return first;
}

// Returns the reciprocal of the root mean square of the outputs; 1 if all are 0.
double weight_of(const at::Tensor& y) {
  const double size = y.square().mean().sqrt().item<double>();
  return size > 0.0 ? 1.0 / size : 1.0;
}

LayerError logged(const std::string& place, const FitErrors& errors) {
  log_info("{}: error {:.4f} in closed form, {:.4f} fitted", place, errors.start, errors.fitted);
  return {.layer = place, .start = errors.start, .fitted = errors.fitted};
}

}  // namespace

std::vector<std::int64_t> sharing(const std::vector<std::int64_t>& owners, std::int64_t layer) {
  std::vector<std::int64_t> layers;
  for (std::size_t other = 0; other < owners.size(); ++other) {
    if (owners[other] >= 0 && owners[other] == owners[static_cast<std::size_t>(layer)]) {
      layers.push_back(static_cast<std::int64_t>(other));
    }
  }
  return layers;
}

void copy_rest(const models::Model& source, const models::Model& target) {
  const at::NoGradGuard guard;
  std::vector<std::string> converted;
  for (std::int64_t layer = 0; layer < source.options().n_layers; ++layer) {
    const config::ModelOptions from = source.options().of_layer(layer), to = target.options().of_layer(layer);
    if (changes_attention(from, to)) {
      converted.push_back(attention_name(layer) + ".");
    }
    if (splits_mlp(from.mlp, to.mlp)) {
      converted.push_back(mlp_of(layer) + ".");
    }
  }
  for (nn::Parameter parameter : target.parameters().stored()) {
    if (std::ranges::none_of(converted, [&](const std::string& place) { return parameter.name.starts_with(place); })) {
      parameter.tensor.copy_(source.parameters().at(parameter.name));
    }
  }
}

LayerConversion::LayerConversion(const ConvertRequest& request, const models::Model& source, const Batches& batches,
                                 bool several)
    : request_(request),
      source_(source),
      sequences_(batches.sequences),
      several_(several),
      fit_(source, batches.fit),
      held_out_(source, batches.held_out) {}

LayerWalk& LayerConversion::at_layer(LayerWalk& walk) const {
  walk.go_to(now_.layer);
  return walk;
}

const LayerActivations& LayerConversion::collected(std::optional<LayerActivations>& value, LayerWalk& walk,
                                                   LayerActivations (*collect)(LayerWalk&)) const {
  if (!value) {
    value = collect(at_layer(walk));
  }
  return *value;
}

const LayerConversion::Attended& LayerConversion::attended(std::int64_t layer) {
  const auto found = attended_.find(layer);
  if (found != attended_.end()) {
    return found->second;
  }
  fit_.go_to(layer);
  held_out_.go_to(layer);
  return attended_.emplace(layer, Attended{collect_attention(fit_), collect_attention(held_out_)}).first->second;
}

bool LayerConversion::convert(const models::Model& target, std::int64_t layer, std::vector<LayerError>& errors) {
  if (now_.layer != layer) {
    now_ = {.layer = layer};
  }
  const std::vector<std::int64_t> owners = target.options().key_owners(source_.options().n_layers);
  const std::vector<std::int64_t> group = sharing(owners, layer);
  const std::int64_t needed = several_ ? layer - 1 : first_needed(owners, layer);
  std::erase_if(attended_, [&](const auto& of) { return of.first < needed; });
  const bool shares = group.size() > 1 && group != sharing(source_.options().key_owners(owners.size()), layer);
  for (std::size_t i = 0; shares && i < group.size() && group[i] <= layer; ++i) {
    attended(group[i]);
  }
  const config::ModelOptions from = source_.options().of_layer(layer), to = target.options().of_layer(layer);
  const auto sums = [&] {
    if (!now_.sums) {
      now_.sums = collect_heads(at_layer(fit_));
    }
    return *now_.sums;
  };
  const auto covariance = [&] {
    if (!now_.covariance.defined()) {
      now_.covariance = covariance_of(at_layer(fit_));
    }
    return now_.covariance;
  };
  const bool has_heads = to.attention.n_heads > 0;
  const bool same_attention = !changes_attention(from, to) || (has_heads && start_layer({.from = from.attention,
                                                                                         .to = to.attention,
                                                                                         .source = source_.parameters(),
                                                                                         .target = target.parameters(),
                                                                                         .place = attention_name(layer),
                                                                                         .sums = sums,
                                                                                         .covariance = covariance}));
  if (!several_) {
    now_.sums.reset();
  }
  const auto inputs = [&] { return collected(now_.mlp, fit_, collect_mlp).x.flatten(0, 1); };
  const bool same_mlp = !splits_mlp(from.mlp, to.mlp) || start_mlp({.from = from.mlp,
                                                                    .to = to.mlp,
                                                                    .source = source_.parameters(),
                                                                    .target = target.parameters(),
                                                                    .place = mlp_of(layer),
                                                                    .inputs = inputs});
  const bool last = !shares || group.back() == layer;
  const std::vector<std::int64_t> together = shares ? group : std::vector<std::int64_t>{layer};
  if (shares ? last : has_heads && to.attention.kv_heads() < from.attention.kv_heads()) {
    start_group(target, together);
  }
  if (request_.fit_steps > 0 && last && (shares || (!same_attention && has_heads))) {
    errors.push_back(fit_attention(target, together));
  }
  if (request_.fit_steps > 0 && !same_mlp) {
    errors.push_back(fit_mlp(target));
  }
  return same_attention && same_mlp;
}

nn::Attention attention_of(const models::Model& model, std::int64_t layer, std::vector<at::Tensor>& parameters) {
  return part_of(model, &parameters, [&](const nn::Builder& build) {
    return nn::Attention(model.options().of_layer(layer).attention, place_of(model.options(), layer),
                         build.in(attention_name(layer)));
  });
}

// Starts heads that share keys within a layer or across layers, if the source has separate keys for each layer.
void LayerConversion::start_group(const models::Model& target, const std::vector<std::int64_t>& layers) {
  std::vector<SharingLayer> group;
  const config::AttentionOptions owner = target.options().of_layer(layers.front()).attention;
  for (const std::int64_t layer : layers) {
    const config::AttentionOptions from = source_.options().of_layer(layer).attention,
                                   to = target.options().of_layer(layer).attention;
    if (!can_share(from) || !can_share(to) || to.n_heads != from.n_heads || from.n_heads != owner.n_heads ||
        to.d_head != from.d_head) {
      return;
    }
    const LayerActivations& values = attended(layer).fit;
    group.push_back(
        {.place = attention_name(layer), .source = values.source.flatten(0, 1), .weight = weight_of(values.y)});
  }
  start_shared(group, owner, source_.parameters(), target.parameters());
}

// `layers`: one layer, or layers that share the keys of the first. Several layers are fitted as one: their activations
// are concatenated, and each output is weighted by the reciprocal of its root mean square.
LayerError LayerConversion::fit_attention(const models::Model& target, const std::vector<std::int64_t>& layers) {
  std::vector<at::Tensor> parameters;
  std::vector<nn::Attention> parts;
  std::vector<double> scale;
  for (const std::int64_t layer : layers) {
    parts.push_back(attention_of(target, layer, parameters));
    scale.push_back(layers.size() == 1 ? 1.0 : weight_of(attended(layer).fit.y));
  }
  const auto joined = [&](LayerActivations Attended::*part) {
    if (layers.size() == 1) {
      return attended(layers.front()).*part;
    }
    std::vector<at::Tensor> x, source, y;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const LayerActivations& own = attended(layers[i]).*part;
      x.push_back(own.x);
      source.push_back(own.source);
      y.push_back(own.y * scale[i]);
    }
    const at::Tensor all = at::cat(x, 2);
    return LayerActivations{all, source.front().is_same(x.front()) ? all : at::cat(source, 2), at::cat(y, 2)};
  };
  const auto output = [&](const LayerActivations& a) {
    if (parts.size() == 1) {
      return parts[0]({.x = a.x, .source = a.source}, {});
    }
    std::vector<ops::SequenceKeys> keys;
    std::vector<at::Tensor> outputs;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t d = target.options().d_model, first = static_cast<std::int64_t>(i) * d;
      outputs.push_back(
          scale[i] *
          parts[i]({.x = a.x.narrow(2, first, d), .source = a.source.narrow(2, first, d), .shared_keys = &keys}, {}));
    }
    return at::cat(outputs, 2);
  };
  return logged(
      fmt::format("layer{}.attention", fmt::join(layers, "+")),
      fit(output, parameters, joined(&Attended::fit), joined(&Attended::held_out), options_for(kAttentionRate)));
}

LayerError LayerConversion::fit_mlp(const models::Model& target) {
  const config::ModelOptions o = target.options().of_layer(now_.layer);
  std::vector<at::Tensor> parameters;
  const std::unique_ptr<nn::Mlp> mlp = part_of(target, &parameters, [&](const nn::Builder& build) {
    return nn::make_mlp(o.mlp, {.d_model = o.d_model, .n_layers = o.n_layers}, build.in(mlp_of(now_.layer)));
  });
  const auto output = [&](const LayerActivations& a) { return (*mlp)(a.x, 0.0, {}); };
  return logged(mlp_of(now_.layer), fit(output, parameters, collected(now_.mlp, fit_, collect_mlp),
                                        collected(now_.held_out_mlp, held_out_, collect_mlp), options_for(kMlpRate)));
}

FitOptions LayerConversion::options_for(double rate) const {
  return {.steps = request_.fit_steps,
          .sequences = sequences_,
          .learning_rate = rate,
          .seed = request_.seed + static_cast<std::uint64_t>(now_.layer)};
}

namespace {

constexpr double kRouterDeviation = 0.3;       // standard deviation of the scores; gates start near their mean
constexpr std::int64_t kClusterTokens = 2048;  // tokens whose activations group the units
constexpr int kRounds = 10;

class ExpertStart {
 public:
  explicit ExpertStart(const MlpStartRequest& request)
      : r_(request), experts_(request.to.n_experts), gated_(request.from.kind == config::MlpKind::gated) {}

  bool start() const {
    const bool all = r_.to.top_k == experts_;
    const at::Tensor inputs = all ? at::Tensor() : r_.inputs();
    const at::Tensor units = all ? at::arange(r_.from.d_hidden, at::kLong) : groups_of(inputs);
    write_units("up", units);
    if (gated_) {
      write_units("gate", units);
    }
    const at::Tensor down = source("w_down").index_select(0, units).view({experts_, r_.to.d_hidden, -1});
    write("w_down", down / gate_size());
    if (r_.from.bias) {
      write("b_out", source("b_down"));
      write("b_down", source("b_down") / (gate_size() * static_cast<double>(r_.to.top_k)));
    }
    write("b_select", at::zeros({1}));
    write("select", all ? at::zeros({1}) : router(inputs, units));
    return all;
  }

 private:
  at::Tensor source(const std::string& name) const { return find_parameter(r_.source, r_.place, name); }
  void write(const std::string& name, const at::Tensor& value) const {
    if (const at::Tensor to = find_parameter(r_.target, r_.place, name); to.defined()) {
      to.copy_(value.expand_as(to));
    }
  }

  // Writes a matrix [d, h] of hidden units, and its bias, divided into experts.
  void write_units(const std::string& which, const at::Tensor& units) const {
    const at::Tensor w = source("w_" + which).index_select(1, units);
    write("w_" + which, w.view({w.size(0), experts_, -1}).transpose(0, 1));
    if (r_.from.bias) {
      write("b_" + which, source("b_" + which).index_select(0, units).view({experts_, -1}));
    }
  }

  // Returns the weight of a routed expert while the scores are 0.
  double gate_size() const {
    switch (r_.to.gate) {
      case config::Gate::sigmoid:
        return 0.5 * r_.to.gate_scale;
      case config::Gate::softmax:
        return r_.to.gate_scale / static_cast<double>(experts_);
      default:  // sums to 1 over the routed experts
        return r_.to.gate_scale / static_cast<double>(r_.to.top_k);
    }
  }

  // Returns the size of each unit's contribution, [N, h].
  at::Tensor contributions(const at::Tensor& inputs) const {
    const auto read = [&](const std::string& which) {
      const at::Tensor y = at::mm(inputs, source("w_" + which));
      return r_.from.bias ? y + source("b_" + which) : y;
    };
    const at::Tensor hidden = gated_ ? nn::activate(read("gate"), r_.from.activation) * read("up")
                                     : nn::activate(read("up"), r_.from.activation);
    return hidden.abs() * source("w_down").norm(2, at::IntArrayRef{1});
  }

  at::Tensor groups_of(const at::Tensor& inputs) const {
    const at::Tensor some = inputs.narrow(0, 0, std::min(inputs.size(0), kClusterTokens));
    const at::Tensor by_unit = contributions(some).t();
    return balanced_groups(by_unit - by_unit.mean(1, /*keepdim=*/true), experts_);
  }

  // Returns a map from a token to the logarithm of each expert's contribution, centred, by ridge regression. The scores
  // have the standard deviation kRouterDeviation.
  at::Tensor router(const at::Tensor& inputs, const at::Tensor& units) const {
    constexpr std::int64_t kBlock = 2048;
    at::Tensor gram, cross;
    for (std::int64_t begin = 0; begin < inputs.size(0); begin += kBlock) {
      const at::Tensor x = inputs.narrow(0, begin, std::min(kBlock, inputs.size(0) - begin));
      const at::Tensor
          size = contributions(x).index_select(1, units).view({x.size(0), experts_, -1}).norm(2, at::IntArrayRef{2}),
          logs = (size + 1e-12).log(), centred = logs - logs.mean(1, /*keepdim=*/true);
      const at::Tensor own_gram = at::mm(x.t(), x).to(at::kDouble), own_cross = at::mm(x.t(), centred).to(at::kDouble);
      gram = gram.defined() ? gram + own_gram : own_gram;
      cross = cross.defined() ? cross + own_cross : own_cross;
    }
    const at::Tensor w = ridge_regression(gram, cross);  // [d, E]
    const double square = (w * at::mm(gram, w)).sum().item<double>() / static_cast<double>(inputs.size(0) * experts_);
    return (w * (kRouterDeviation / std::sqrt(std::max(square, 1e-24)))).to(at::kFloat);
  }

  const MlpStartRequest& r_;
  std::int64_t experts_;
  bool gated_;
};

// Returns the indices [k] of units far from each other. Each next unit is the least similar to all previous ones.
at::Tensor far_units(const at::Tensor& unit_features, std::int64_t k) {
  std::vector<std::int64_t> found = {0};
  at::Tensor nearest = at::mv(unit_features, unit_features[0]);
  while (static_cast<std::int64_t>(found.size()) < k) {
    found.push_back(nearest.argmin().item<std::int64_t>());
    nearest = at::maximum(nearest, at::mv(unit_features, unit_features[found.back()]));
  }
  return at::tensor(found, at::kLong);
}

}  // namespace

at::Tensor balanced_groups(const at::Tensor& features, std::int64_t groups) {
  const auto normed = [](const at::Tensor& rows) { return rows / (rows.norm(2, at::IntArrayRef{1}, true) + 1e-12); };
  const at::Tensor rows = normed(features.contiguous());
  const std::int64_t units = rows.size(0), size = units / groups;
  at::Tensor centres = rows.index_select(0, far_units(rows, groups)), order;
  for (int round = 0; round < kRounds; ++round) {
    // Assigns the closest pairs of unit and group first, as long as the group has room.
    const at::Tensor pairs = std::get<1>(at::mm(rows, centres.t()).flatten().sort(/*stable=*/true, 0, true));
    const std::int64_t* const pair = pairs.const_data_ptr<std::int64_t>();
    std::vector<std::int64_t> group(static_cast<std::size_t>(units), -1);
    std::vector<std::vector<std::int64_t>> members(static_cast<std::size_t>(groups));
    for (std::int64_t i = 0; i < units * groups; ++i) {
      std::int64_t& of = group[static_cast<std::size_t>(pair[i] / groups)];
      std::vector<std::int64_t>& in = members[static_cast<std::size_t>(pair[i] % groups)];
      if (of < 0 && static_cast<std::int64_t>(in.size()) < size) {
        of = pair[i] % groups;
        in.push_back(pair[i] / groups);
      }
    }
    std::vector<std::int64_t> all;
    for (std::vector<std::int64_t>& in : members) {
      std::ranges::sort(in);
      all.insert(all.end(), in.begin(), in.end());
    }
    order = at::tensor(all, at::kLong);
    centres = normed(rows.index_select(0, order).view({groups, size, -1}).mean(1));
  }
  return order;
}

bool start_mlp(const MlpStartRequest& request) {
  const at::NoGradGuard guard;
  return ExpertStart(request).start();
}

}  // namespace headroom::convert
