// Blocks, and whole models: language models over consecutive chunks, classifiers.
#include <ATen/CPUGeneratorImpl.h>

#include "engine/models/block.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/language_model.h"
#include "runners.h"

namespace headroom::golden {
namespace {

// Whole models decide that themselves.
void require_causal(const Json& attention, bool causal) {
  if (!is_null(attention, "causal") && flag(attention, "causal") != causal) {
    user_error("options.attention.causal: must be {} in this kind of model", causal);
  }
}

config::ModelOptions language_model_options(const Case& c) {
  config::ModelOptions model;
  model.vocabulary_size = c.dim("V");
  model.context_length = c.dim("T");
  require_among(c.options, "memory", {"none", "previous_chunk"});
  require_causal(c.options.at("attention"), true);
  model.memory_length = c.options.at("memory") == "previous_chunk" ? c.dim("T") : 0;
  model.tied_embeddings = !c.has("param.head.w");
  model.head_bias = c.has("param.head.b");
  set_stack(c, c.options, model);
  return model;
}

}  // namespace

std::vector<Result> run_block(const Case& c, const nn::Context& context) {
  Result result;
  const at::Tensor x = leaf(c, "in.x", result);
  config::ModelOptions options;
  set_stack(c, c.options, options);
  nn::Parameters parameters;
  const nn::Builder build(parameters, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{1}),
                          x.options().requires_grad(false));
  const models::Block block(options, place_of(c, c.options.at("attention")), build);
  load_parameters(c, parameters, result);
  models::BlockInput input;
  input.h = x;
  if (c.has("in.mem")) {
    input.memory = leaf(c, "in.mem", result);
  }
  input.valid_keys = valid_keys(c, c.options.at("attention"));
  result.values["out"] = block(input, context);
  return {std::move(result)};
}

std::vector<Result> run_classifier(const Case& c, const nn::Context& context) {
  Result result;
  config::ModelOptions options;
  options.vocabulary_size = c.dim("V");
  options.context_length = c.at("param.position").size(0);
  set_stack(c, c.options, options);
  options.kind = config::ModelKind::classifier;
  options.attention.position = "learned";
  options.n_classes = c.dim("C");
  options.d_head_hidden = c.dim("d_hidden");
  require_among(c.options, "features", {"single", "pair"});
  require_among(c.options, "pooling", {"mean_over_length"});
  require_causal(c.options.at("attention"), false);
  if (!masks_keys(c.options.at("attention"))) {
    user_error("options.attention.padding: a classifier masks padded keys");
  }
  options.paired = c.options.at("features") == "pair";
  options.padding_token = c.options.at("padding_token").get<std::int64_t>();
  options.head_activation = activation_of(c.options, "head_activation");
  models::Classifier model(options, /*seed=*/1, c.at("param.embed").options());
  load_parameters(c, model.parameters(), result);
  const at::Tensor second = options.paired ? c.at("in.tokens_2") : at::Tensor();
  const at::Tensor logits = model.logits(c.at("in.tokens"), second, context);
  result.values["out.logits"] = logits;
  result.values["out.loss"] = at::cross_entropy_loss(logits, c.at("in.label"));
  return {std::move(result)};
}

std::vector<Result> run_language_model(const Case& c, const nn::Context& given) {
  Result parameters;
  models::LanguageModel model(language_model_options(c), /*seed=*/1, c.at("param.embed").options());
  load_parameters(c, model.parameters(), parameters);
  const std::int64_t t = c.dim("T"), chunks = c.options.at("chunks").get<std::int64_t>();
  models::Memory memory;
  std::vector<Result> results;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    Result result = parameters;
    result.prefix = fmt::format("chunk{}.", chunk);
    const at::Tensor tokens = c.at("in.tokens").narrow(1, chunk * t, t + 1);
    std::map<std::string, at::Tensor> losses;
    nn::Context context = given;
    models::Memory same = memory;  // both passes read what the chunk before left
    result.values["out.logits"] = model.logits(tokens.narrow(1, 0, t), same, context);
    context.losses = &losses;
    result.values["out.loss"] = model.loss(tokens, memory, context).cross_entropy;
    if (losses.contains("entropy")) {
      result.values["aux.entropy"] = losses.at("entropy");
      if (const Json& weights = c.options.at("losses"); weights.is_object()) {
        result.values["aux.total"] = losses.at("entropy") * weights.value("entropy", 0.0);
      }
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace headroom::golden
