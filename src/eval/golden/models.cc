// Whole language models over consecutive chunks.
#include "headroom/core/error.h"
#include "headroom/models/language_model.h"
#include "runners.h"

namespace headroom::eval::golden {
namespace {

config::ModelOptions model_options(const Case& c) {
  const Json& o = c.options;
  config::ModelOptions model;
  model.vocabulary_size = c.dim("V");
  model.n_layers = c.dim("L");
  model.d_model = c.dim("d_model");
  model.context_length = c.dim("T");
  model.memory_length = o.at("memory") == "previous_chunk" ? c.dim("T") : 0;
  model.arrangement =
      o.at("arrangement") == "parallel" ? config::Arrangement::parallel : config::Arrangement::sequential;
  model.norm = o.at("norm").at("kind") == "rms" ? config::Norm::rms : config::Norm::layer;
  model.norm_epsilon = o.at("norm").at("epsilon").get<double>();
  model.tied_embeddings = !c.has("param.head.w");
  model.head_bias = c.has("param.head.b");
  const Json& attention = o.at("attention");
  model.attention = attention_options(c, attention.at("family").get<std::string>(), attention);
  model.attention.window = window_of(attention);
  model.mlp = mlp_options(c, o.at("ffn"));
  return model;
}

}  // namespace

std::vector<Result> run_language_model(const Case& c, const nn::Context& given) {
  Result parameters;
  models::LanguageModel model(model_options(c), /*seed=*/1, at::TensorOptions(c.at("param.embed").scalar_type()));
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

}  // namespace headroom::eval::golden
