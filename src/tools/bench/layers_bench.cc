// Benchmark of attention layers: a plain layer and layers with one added part, against their references.
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "attention_sizes.h"
#include "headroom/config/config.h"
#include "headroom/nn/attention.h"
#include "timing.h"

namespace headroom::bench {
namespace {

using config::AttentionOptions;

struct NamedLayer {
  std::string name;
  AttentionOptions attention;
};

// A layer with these keys of [model.attention], "key=value".
NamedLayer named(const std::string& name, std::int64_t n_heads, std::int64_t d_head,
                 const std::vector<std::string>& settings = {}) {
  config::Config config;
  config.model.attention.n_heads = n_heads;
  config.model.attention.d_head = d_head;
  for (const std::string& setting : settings) {
    config::set_key(config, "model.attention." + setting, "bench");
  }
  return {name, config.model.attention};
}

// A plain layer, and layers with one added part. Most compute as many heads as the plain layer: routed queries select
// half of twice as many, and version 1 of differential attention halves its heads, as its authors do.
std::vector<NamedLayer> added_parts(std::int64_t h, std::int64_t e) {
  const std::int64_t groups = std::max<std::int64_t>(h / 4, 1);
  const auto key = [](const char* name, std::int64_t value) { return fmt::format("{}={}", name, value); };
  return {named("plain", h, e),
          named("sink", h, e, {"sink=true"}),
          named("gate of heads", h, e, {"gate_output=head"}),
          named("gate of heads from 12 channels", h, e, {"gate_output=head", "gate_channels=12"}),
          named("gate of channels", h, e, {"gate_output=element"}),
          named("exclusive", h, e, {"exclusive=true"}),
          named("linear biases", h, e, {"position=alibi"}),
          named("forget gates", h, e, {"position=forgetting"}),
          named("sigmoid", h, e, {"score=sigmoid"}),
          named("differential, version 2", h, e, {"composition=differential"}),
          named("differential, version 1", h / 2, e, {"composition=differential", "differential_version=1"}),
          named("factored, 2 and 6", h, e, {"projection=factored", "kv_rank=2", "q_rank=6"}),
          named(fmt::format("tied, {} of {}", groups, h), h, e + e % 2, {"projection=tied", key("n_kv_heads", groups)}),
          named("shared and routed", h, e,
                {"projection=shared_and_routed", key("shared_heads", h / 4), key("top_k", h / 2)}),
          named(fmt::format("grouped, {} of {}", h / 2, h), h, e, {key("n_kv_heads", h / 2)}),
          named(fmt::format("routed queries, {} of {} in {} groups", h, 2 * h, h / 2), 2 * h, e,
                {"projection=routed_queries", key("n_kv_heads", h / 2), "top_k=2", "gate=softmax_renormalised"})};
}

// A forward and backward pass, with gradients of the tokens and all parameters. Keys beyond the tokens are those of a
// memory.
Work layer_training(const AttentionOptions& o, const AttentionSize& z, const BenchOptions& options,
                    Implementation implementation) {
  struct Layer {
    nn::Parameters parameters;
    nn::Attention attention;
    Layer(const AttentionOptions& o, std::int64_t d_model, std::int64_t keys, const at::TensorOptions& type)
        : attention(o, {.d_model = d_model, .context_length = keys},
                    nn::Builder(parameters, nn::ParameterSource(1, type))) {}
  };
  const std::int64_t d_model = z.h * z.e;
  const at::TensorOptions type = type_of(options);
  const auto layer = std::make_shared<Layer>(o, d_model, z.s, type.dtype(at::kFloat));
  nn::Context context;
  context.implementation = implementation;
  if (options.precision == "bf16") {
    context.compute_dtype = at::kBFloat16;
  }
  const at::Tensor x = at::randn({z.b, z.t, d_model}, type).requires_grad_(true);
  const at::Tensor memory = at::randn({z.b, z.s - z.t, d_model}, type);
  std::vector<at::Tensor> leaves = {x};
  for (const nn::Parameter& p : layer->parameters.all()) {
    leaves.push_back(p.tensor);
  }
  return [=] {
    const at::Tensor source = memory.size(1) == 0 ? at::Tensor() : at::cat({memory, x}, 1);
    const at::Tensor y = layer->attention({.x = x, .source = source}, context);
    torch::autograd::grad({y}, leaves, {at::ones_like(y)}, {}, false, /*allow_unused=*/true);
  };
}

}  // namespace

std::vector<Row> layers(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const AttentionSize& z : kAttentionSizes) {
    std::vector<Contender> contenders;
    for (const auto& [name, attention] : added_parts(z.h, z.e)) {
      const std::size_t reference = contenders.size();
      for (const auto& [how, implementation] :
           {std::pair("reference", Implementation::reference), std::pair("fused", Implementation::automatic)}) {
        contenders.push_back({.name = fmt::format("{}: {}, {}", z.name(), name, how),
                              .work = layer_training(attention, z, options, implementation),
                              .reference = reference});
      }
    }
    std::ranges::move(compare(contenders, options), std::back_inserter(rows));
  }
  return rows;
}

}  // namespace headroom::bench
