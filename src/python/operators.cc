// Layers and models as operators of torch's dispatcher: composites of those with derivatives, so that they are
// differentiated, compiled and exported through them.
#include "context.h"
#include "engine/models/balance.h"
#include "engine/ops/operator.h"
#include "foundation/core/machine/system.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/models/class_model.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/masked_language_model.h"
#include "headroom/models/model.h"
#include "parts.h"
#include "refusal.h"

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

// How to compute: what every call says.
struct Way {
  bool training = false, balance = false;
  std::string implementation = "automatic";
  template <class V>
  void visit(V& v) {
    v("training", training);
    v("balance", balance);
    v("implementation", implementation);
  }
};

void require_parameters(const Layer& layer, const Tensors& parameters) {
  if (parameters.empty()) {
    fail("{}: its parameters must be given", layer.kind);
  }
}

// The sum of what routing adds to a loss, with its coefficients; 0 where nothing does.
at::Tensor weighted(models::BalanceLosses losses, const Layer& layer, const at::Tensor& like) {
  const at::Tensor sum = models::with_balance({}, std::move(losses), layer.model, {}).regulariser;
  return sum.defined() ? sum : at::zeros({}, like.options());
}

struct LayerCall {
  Inputs in;
  Tensors parameters;
  std::string layer;
  Way way;
  template <class V>
  void visit(V& v) {
    v("x", in.x);
    v("parameters", parameters);
    v("layer", layer);
    v.by_name();
    v("memory", in.memory);
    v("source", in.source);
    v("source_value", in.source_value);
    v("valid_keys", in.valid_keys);
    v("valid_queries", in.valid_queries);
    v("valid_source", in.valid_source);
    v("targets", in.targets);
    v("remember", in.remember);
    way.visit(v);
  }
};

// The result, then what the layer remembers (`remember`), then its balance loss (`balance`).
Results run_layer(const LayerCall& call) {
  const Layer& layer = layer_of(call.layer);
  require_parameters(layer, call.parameters);
  const at::Device device = call.in.x.device();
  nn::Context context = context_of(layer, device, call.way.training, call.way.implementation);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  models::BalanceLosses losses;
  context.losses = call.way.balance ? &losses : nullptr;
  nn::Parameters parameters;
  const nn::Builder build(parameters, nn::Beginning(call.parameters));
  Results all{part_of(layer).run(layer, call.in, build, context)};
  build.require_all_taken();
  if (call.way.balance) {
    all.results.push_back(weighted(std::move(losses), layer, call.parameters[0]));
  }
  return all;
}

struct ModelCall {
  Tensors parameters, inputs;
  std::string layer, names;  // of the inputs, with commas between them
  bool loss = false;
  double label_smoothing = 0.0;
  Way way;
  template <class V>
  void visit(V& v) {
    v("parameters", parameters);
    v("inputs", inputs);
    v("layer", layer);
    v("names", names);
    v.by_name();
    v("loss", loss);
    v("label_smoothing", label_smoothing);
    way.visit(v);
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

// Logits; or the loss, with the balance losses in it.
Results run_model(const ModelCall& call) {
  const Layer& layer = layer_of(call.layer);
  require_parameters(layer, call.parameters);
  const nn::Context context =
      context_of(layer, call.parameters[0].device(), call.way.training, call.way.implementation);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto model = models::make_model(layer.built(), nn::Beginning(call.parameters));
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

// Every option of a layer's model with its value as TOML has it.
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

// Whether routing adds to the losses of such a layer or model.
bool balances(const std::string& text) {
  const config::ModelOptions& o = layer_of(text).model;
  for (const auto& losses : {o.attention.projection->balance_losses(o.attention), o.mlp.balance_losses()}) {
    for (const config::BalanceLoss& loss : losses) {
      if (loss.coefficient != 0.0) {
        return true;
      }
    }
  }
  return false;
}

// Names, shapes and kinds of the parameters in the order that the layer takes them in.
std::string parameters_of(const std::string& text) {
  nn::Parameters parameters;
  make_parameters(layer_of(text), parameters, nn::Beginning(0, at::TensorOptions(at::kFloat).device(at::kMeta)));
  Json list = Json::array();
  for (const nn::Parameter& parameter : parameters.made()) {
    list.push_back({{"name", parameter.name}, {"shape", parameter.tensor.sizes().vec()}, {"buffer", parameter.buffer}});
  }
  return to_json_line(list);
}

// In the same order, as training would begin with them.
Tensors initial_parameters(const std::string& text, std::int64_t seed) {
  nn::Parameters parameters;
  make_parameters(layer_of(text), parameters, nn::Beginning(static_cast<std::uint64_t>(seed)));
  Tensors values;
  for (const nn::Parameter& parameter : parameters.made()) {
    values.push_back(parameter.tensor.detach());
  }
  return values;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  ops::offer<LayerCall, run_layer>(library, "layer");
  ops::offer<ModelCall, run_model>(library, "model");
  library.def("set_home_folder", refusing(set_home_folder));
  library.def("describe_layer", refusing(describe_named));
  library.def("options_of", refusing(options_of));
  library.def("balances", refusing(balances));
  library.def("parameters_of", refusing(parameters_of));
  library.def("initial_parameters", refusing(initial_parameters));
}

}  // namespace headroom::python
