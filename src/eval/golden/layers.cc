// Attention layers and expert MLPs, each alone.
#include <ATen/CPUGeneratorImpl.h>

#include "headroom/core/error.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/mlp.h"
#include "runners.h"

namespace headroom::eval::golden {
namespace {

nn::Builder builder(nn::Parameters& parameters, const at::Tensor& like) {
  return {parameters, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{1}),
          at::TensorOptions(like.scalar_type())};
}

bool flag(const Json& options, const char* key) {
  return options.contains(key) && options.at(key).is_boolean() && options.at(key).get<bool>();
}

template <class Enum>
Enum value_of(const Json& options, const char* key, Enum otherwise) {
  if (!options.contains(key) || !options.at(key).is_string()) {
    return otherwise;
  }
  for (const auto& [candidate, name] : config::Names<Enum>::kNames) {
    if (options.at(key).get<std::string>() == name) {
      return candidate;
    }
  }
  misuse("options.{}: {} is not known here", key, options.at(key).dump());
}

void set_position(const Case& c, const Json& options, config::AttentionOptions& o) {
  o.position = value_of(options, "position", config::Position::none);
  if (o.position == config::Position::rope) {
    const Json& rope = options.at("rope");
    const double channels = rope.at("channels").get<double>();
    o.rope_fraction = channels / static_cast<double>(c.dim("d_head"));
    o.rope_base = rope.at("base").get<double>();
  } else if (o.position == config::Position::relative) {
    o.rope_base = options.at("relative").at("base").get<double>();
  }
}

}  // namespace

std::int64_t window_of(const Json& options) {
  return options.contains("window") && options.at("window").is_number() ? options.at("window").get<std::int64_t>() : 0;
}

config::AttentionOptions attention_options(const Case& c, const std::string& family, const Json& options) {
  config::AttentionOptions o;
  o.n_heads = c.dim("H");
  o.d_head = c.dim("d_head");
  o.bias = flag(options, "bias");
  o.position_bias = flag(options, "position_bias");
  o.scale = value_of(options, "scale", config::Scale::inv_sqrt);
  set_position(c, options, o);
  if (family == "switchhead") {
    o.projection = config::Projection::experts;
    o.experts.clear();
    for (const char* which : {"q", "k", "v", "o"}) {
      if (flag(options.at("experts"), which)) {
        o.experts.emplace_back(which);
      }
    }
    o.n_experts = c.dim("E");
    o.top_k = c.dim("k");
    o.shared_selection = flag(options, "shared_selection");
    o.gate = value_of(options, "gate", config::Gate::sigmoid);
  } else if (family != "dense") {
    misuse("attention of family {} has no implementation yet", family);
  }
  return o;
}

config::MlpOptions mlp_options(const Case& c, const Json& ffn) {
  config::MlpOptions o;
  const std::string kind = ffn.at("kind").get<std::string>();
  o.kind = kind == "experts" ? config::MlpKind::experts
           : kind == "gated" ? config::MlpKind::gated
                             : config::MlpKind::dense;
  const std::string activation = ffn.value("activation", Json("relu")).get<std::string>();
  o.activation =
      activation == "gelu_erf" ? config::Activation::gelu : value_of(ffn, "activation", config::Activation::relu);
  o.bias = flag(ffn, "bias");
  if (o.kind == config::MlpKind::experts) {
    o.d_hidden = c.dim("d_expert");
    o.n_experts = c.dims.contains("E_ff") ? c.dim("E_ff") : c.dim("E");
    o.top_k = c.dims.contains("k_ff") ? c.dim("k_ff") : c.dim("k");
  } else {
    o.d_hidden = c.dim("d_ff");
  }
  return o;
}

std::vector<Result> run_attention(const Case& c, const nn::Context& given) {
  Result result;
  const at::Tensor x = leaf(c, "in.x", result);
  nn::Parameters parameters;
  const nn::AttentionPlace place{
      .d_model = c.dim("d_model"), .causal = flag(c.options, "causal"), .window = window_of(c.options)};
  const nn::Attention attention(attention_options(c, c.family, c.options), place, builder(parameters, x));
  load_parameters(c, parameters, result);

  nn::AttentionInput input;
  input.x = x;
  if (c.has("in.mem")) {
    input.source = at::cat({leaf(c, "in.mem", result), x}, 1);
  }
  if (c.options.contains("padding") && !c.options.at("padding").is_null()) {
    input.valid_keys = c.at("in.mask").ne(0);
  }
  nn::Context context = given;
  std::map<std::string, at::Tensor> trace;
  context.trace = given.implementation == Implementation::reference ? &trace : nullptr;
  result.values["out"] = attention(input, context);
  add_trace(trace, "", result);
  return {std::move(result)};
}

std::vector<Result> run_expert_ffn(const Case& c, const nn::Context& given) {
  Result result;
  const at::Tensor x = leaf(c, "in.x", result);
  nn::Parameters parameters;
  Json ffn = c.options;
  ffn["kind"] = "experts";
  const auto mlp = nn::make_mlp(mlp_options(c, ffn), c.dim("d_model"), 1, builder(parameters, x));
  load_parameters(c, parameters, result);
  nn::Context context = given;
  std::map<std::string, at::Tensor> trace, losses;
  context.trace = given.implementation == Implementation::reference ? &trace : nullptr;
  context.losses = &losses;
  result.values["out"] = (*mlp)(x, 0.0, context);
  result.values["aux.entropy"] = losses.at("entropy");
  if (const Json& weights = c.options.at("losses"); weights.is_object()) {
    result.values["aux.total"] = losses.at("entropy") * weights.value("entropy", 0.0);
  }
  add_trace(trace, "", result);
  return {std::move(result)};
}

Runner find_runner(const std::string& family) {
  static const std::map<std::string, Runner> kRunners = {{"dense", run_attention},
                                                         {"switchhead", run_attention},
                                                         {"expert_ffn", run_expert_ffn},
                                                         {"language_model", run_language_model}};
  const auto found = kRunners.find(family);
  return found == kRunners.end() ? nullptr : found->second;
}

}  // namespace headroom::eval::golden
