// Layers and models as operators of torch's dispatcher. They are composites of differentiable operators, which makes
// them differentiable, compilable and exportable.
#include <torch/library.h>
#include <algorithm>

#include "context.h"
#include "engine/models/block.h"
#include "engine/models/model_base.h"
#include "engine/ops/operator.h"
#include "foundation/core/machine/system.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/models/classifier.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/masked_language_model.h"
#include "headroom/models/model.h"
#include "layer.h"

namespace headroom::python {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Results {
  Tensors results;
  template <class V>
  void visit(V& v) {
    v("results", results);
  }
};

struct CallOptions {
  bool training = false, balance = false;
  std::string implementation = "automatic";
  template <class V>
  void visit(V& v) {
    v("training", training, "balance", balance, "implementation", implementation);
  }
};

void require_parameters(const Layer& layer, const Tensors& parameters) {
  if (parameters.empty()) {
    fail("{}: parameters must not be empty", layer.kind);
  }
}

// Returns the sum of the balance losses with their coefficients; 0 without any.
at::Tensor balance_loss(models::BalanceLosses losses, const Layer& layer, const at::Tensor& like) {
  const at::Tensor sum = models::with_balance({}, std::move(losses), layer.model, {}).regulariser;
  return sum.defined() ? sum : at::zeros({}, like.options());
}

struct LayerCall {
  Inputs in;
  Tensors parameters;
  std::string layer;
  CallOptions options;
  template <class V>
  void visit(V& v) {
    v("x", in.x, "parameters", parameters, "layer", layer);
    v.by_name();
    v("memory", in.memory, "source", in.source, "source_value", in.source_value, "valid_keys", in.valid_keys);
    v("valid_queries", in.valid_queries, "valid_source", in.valid_source, "routed_by", in.routed_by);
    v("targets", in.targets, "remember", in.remember, "each", in.each);
    options.visit(v);
  }
};

// Returns the result, then the memory for the next chunk (with `remember`), then the balance loss (with `balance`).
Results run_layer(const LayerCall& call) {
  const Layer& layer = layer_of(call.layer);
  require_parameters(layer, call.parameters);
  const at::Device device = call.in.x.device();
  nn::Context context = context_of(layer, device, call.options.training, call.options.implementation);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  models::BalanceLosses losses;
  context.losses = call.options.balance ? &losses : nullptr;
  nn::Parameters parameters;
  const nn::Builder build(parameters, nn::ParameterSource(call.parameters));
  Results all{kind_of(layer).run(layer, call.in, build, context)};
  build.require_all_taken();
  if (call.options.balance) {
    all.results.push_back(balance_loss(std::move(losses), layer, call.parameters[0]));
  }
  return all;
}

struct ModelCall {
  Tensors parameters, inputs;
  std::string layer, names;  // names: of the inputs, separated by commas
  bool loss = false;
  double label_smoothing = 0.0;
  CallOptions options;
  template <class V>
  void visit(V& v) {
    v("parameters", parameters, "inputs", inputs, "layer", layer, "names", names);
    v.by_name();
    v("loss", loss, "label_smoothing", label_smoothing);
    options.visit(v);
  }
};

models::Batch batch_of(const ModelCall& call) {
  models::Batch batch;
  batch.label_smoothing = call.label_smoothing;
  std::size_t begin = 0;
  for (const at::Tensor& tensor : call.inputs) {
    const std::size_t end = std::min(call.names.find(',', begin), call.names.size());
    batch.tensors[call.names.substr(begin, end - begin)] = tensor;
    begin = std::min(end + 1, call.names.size());
  }
  return batch;
}

at::Tensor logits_of(const models::Model& model, const models::Batch& batch, const nn::Context& context) {
  if (const auto* classes = dynamic_cast<const models::ClassModel*>(&model)) {
    return classes->class_logits(batch, context);
  }
  if (const auto* masked = dynamic_cast<const models::MaskedLanguageModel*>(&model)) {
    return masked->logits(batch.at("tokens"), batch.find("valid"), context);
  }
  return models::as_encoder_decoder(model, "logits")
      .logits({.source = batch.at("source"),
               .valid_source = batch.find("valid_source"),
               .target = batch.at("target"),
               .valid_target = batch.find("valid_target")},
              context);
}

// Returns the logits or, with `loss`, the loss including balance losses.
Results run_model(const ModelCall& call) {
  const Layer& layer = layer_of(call.layer);
  require_parameters(layer, call.parameters);
  const nn::Context context =
      context_of(layer, call.parameters[0].device(), call.options.training, call.options.implementation);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto model = models::make_model(layer.built(), nn::ParameterSource(call.parameters));
  const models::Batch batch = batch_of(call);
  if (!call.loss) {
    return {{logits_of(*model, batch, context)}};
  }
  models::Memory memory;
  return {{model->loss(batch, memory, context).total()}};
}

std::string describe_named(const std::string& kind, const std::string& origin, const std::string& source,
                           const std::vector<std::string>& settings, bool causal, bool cross, std::int64_t layer) {
  return describe_layer({.kind = kind, .causal = causal, .cross = cross, .index = layer, .model = {}}, source, settings,
                        origin);
}

// Returns all options of a layer's model as JSON, with values in TOML.
std::string options_of(const std::string& text) {
  config::Config config;
  config.model = layer_of(text).model;
  Json options = Json::object();
  for (const auto& [key, value] : config::flatten(config)) {
    if (key.starts_with("model.")) {
      options[key] = value;
    }
  }
  return to_json_line(options);
}

// Whether the layer or model has balance losses.
bool balances(const std::string& text) {
  const config::ModelOptions& o = layer_of(text).model;
  const std::vector<config::BalanceLoss> losses = o.balance_losses();
  return std::ranges::any_of(losses, [](const auto& loss) { return loss.coefficient != 0.0; });
}

// Returns the name, shape and kind of each parameter as JSON, in creation order.
std::string parameters_of(const std::string& text) {
  nn::Parameters parameters;
  make_parameters(layer_of(text), parameters, nn::ParameterSource(0, at::TensorOptions(at::kFloat).device(at::kMeta)));
  Json list = Json::array();
  for (const nn::Parameter& parameter : parameters.in_creation_order()) {
    list.push_back({{"name", parameter.name}, {"shape", parameter.tensor.sizes().vec()}, {"buffer", parameter.buffer}});
  }
  return to_json_line(list);
}

// Returns the initial values in creation order.
Tensors initial_parameters(const std::string& text, std::int64_t seed) {
  nn::Parameters parameters;
  make_parameters(layer_of(text), parameters, nn::ParameterSource(static_cast<std::uint64_t>(seed)));
  Tensors values;
  for (const nn::Parameter& parameter : parameters.in_creation_order()) {
    values.push_back(parameter.tensor.detach());
  }
  return values;
}

// The layers of a block or a model, keyed by the prefix of their parameter names; Python wraps them in modules.
using Children = std::vector<std::pair<std::string, Layer>>;

// In the order in which a block creates its parameters.
Children children_of_block(const Layer& block) {
  const Layer norm{.kind = "norm", .model = block.model},
      mlp{.kind = "mlp", .index = block.index, .model = block.model};
  const Layer attention{.kind = "attention", .causal = block.causal, .index = block.index, .model = block.model};
  Children children;
  const auto add = [&](const std::string& norm_name, const std::string& name, const Layer& layer) {
    children.emplace_back(norm_name, norm);
    children.emplace_back(name, layer);
    if (block.model.output_norms) {
      children.emplace_back(norm_name + "_out", norm);
    }
  };
  const config::ModelOptions own = block.own();
  if (own.attention.has_heads()) {
    add("norm_1", "attention", attention);
  }
  if (own.mlp.kind != config::MlpKind::none) {
    add("norm_2", "ffn", mlp);
  }
  if (block.cross) {
    Layer across{.kind = "attention", .causal = false, .cross = true, .index = block.index, .model = block.own()};
    across.model.attention = across.model.attention.across_sequences();
    add("norm_cross", "cross", across);
  }
  return children;
}

// Adds the blocks of `n` layers that have their own parameters and, with `norm`, the norm after them.
void add_stack(Children& children, const std::string& scope, Layer block, std::int64_t n, bool norm) {
  block.kind = "block";
  block.model.n_layers = n;
  for (block.index = 0; block.index < block.model.distinct_layers(); ++block.index) {
    children.emplace_back(fmt::format("{}layer{}", scope, block.index), block);
  }
  if (norm) {
    Layer last{.kind = "norm", .model = block.model};
    last.model.norm_epsilon = block.model.last_norm_epsilon();
    children.emplace_back(scope + "norm_f", last);
  }
}

Children children_of_model(const Layer& model) {
  const config::ModelOptions& o = model.model;
  Children children;
  Layer block{.kind = "block", .causal = false, .model = o};
  switch (o.kind) {
    case config::ModelKind::language_model:
      block.causal = true;
      add_stack(children, "", block, o.n_layers, true);
      children.emplace_back("head", Layer{.kind = "head", .model = o});
      break;
    case config::ModelKind::encoder_decoder: {
      const bool norm = o.norm_position == config::NormPosition::pre;
      add_stack(children, "encoder.", block, o.n_layers, norm);
      block.causal = block.cross = true;
      add_stack(children, "decoder.", block, o.decoder_layers(), norm);
      break;
    }
    case config::ModelKind::vision:
      block.model.context_length = o.patches();
      [[fallthrough]];
    case config::ModelKind::masked_language_model:
    case config::ModelKind::classifier:
      add_stack(children, "", block, o.n_layers, true);
      break;
  }
  return children;
}

std::string children_of(const std::string& text) {
  const Layer& layer = layer_of(text);
  Json list = Json::array();
  const Children children = layer.kind == "block"   ? children_of_block(layer)
                            : layer.kind == "model" ? children_of_model(layer)
                                                    : Children();
  for (const auto& [name, child] : children) {
    list.push_back({{"name", name}, {"kind", child.kind}, {"layer", describe(child)}});
  }
  return to_json_line(list);
}

at::Tensor remembered(const std::optional<at::Tensor>& memory, const at::Tensor& h, std::int64_t keep) {
  return models::next_memory(memory.value_or(at::Tensor()), h, keep);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  ops::define_public<LayerCall, run_layer>(library, "layer");
  ops::define_public<ModelCall, run_model>(library, "model");
  library.def("set_home_folder", throwing_value_errors(set_home_folder));
  library.def("describe_layer", throwing_value_errors(describe_named));
  library.def("options_of", throwing_value_errors(options_of));
  library.def("balances", throwing_value_errors(balances));
  library.def("parameters_of", throwing_value_errors(parameters_of));
  library.def("children_of", throwing_value_errors(children_of));
  library.def("remembered", throwing_value_errors(remembered));
  library.def("initial_parameters", throwing_value_errors(initial_parameters));
}

}  // namespace headroom::python
