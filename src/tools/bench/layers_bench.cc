// Benchmarks of single attention layers: layers with one added part against a plain layer and against their reference
// implementation; linear attention, the gated delta rule and latent attention; and a SwitchHead layer called from C++,
// from headroom_torch, and written in plain PyTorch.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "engine/ops/attention/attention_cases.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention.h"
#include "process.h"
#include "timing.h"
#include "workload.h"

namespace headroom::bench {
namespace {

using config::AttentionOptions;

struct NamedLayer {
  std::string name;
  AttentionOptions attention;
};

AttentionOptions heads(std::int64_t n_heads, std::int64_t d_head) {
  AttentionOptions o;
  o.n_heads = n_heads;
  o.d_head = d_head;
  return o;
}

// A layer with these keys of [model.attention], "key=value".
NamedLayer named(const std::string& name, std::int64_t n_heads, std::int64_t d_head,
                 const std::vector<std::string>& settings = {}) {
  config::Config config;
  config.model.attention = heads(n_heads, d_head);
  for (const std::string& setting : settings) {
    config::set_key(config, "model.attention." + setting, "bench");
  }
  return {name, config.model.attention};
}

constexpr std::int64_t kSteps = 4;  // decoded tokens per timed run

// Decodes tokens of a sequence that already has `cached` tokens in its cache.
Work decoding_steps(const AttentionOptions& o, std::int64_t cached, std::int64_t d_model, const BenchOptions& options) {
  const at::NoGradGuard no_grad;
  const std::int64_t capacity = cached + kSteps * (options.repeats + 2);
  const auto built = std::make_shared<AttentionLayer>(o, d_model, capacity, options);
  if (built->context.compute_dtype) {
    built->parameters.cache_weights_in(at::kBFloat16);
  }
  const auto cache = std::make_shared<nn::AttentionCache>(built->layer.make_cache());
  const at::Tensor x = at::randn({1, cached, d_model}, type_of(options)), next = x.narrow(1, 0, 1).contiguous();
  nn::AttentionInput prompt;
  prompt.x = x;
  nn::AttentionCache* row = cache.get();
  prompt.caches = {&row, 1};
  built->layer(prompt, built->context);
  return [=] {
    const at::NoGradGuard none;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      nn::AttentionInput input;
      input.x = next;
      nn::AttentionCache* one = cache.get();
      input.caches = {&one, 1};
      built->layer(input, built->context);
    }
  };
}

// Returns one row per layer; the first layer is the reference. Times are multiplied by `share`.
template <class Make>
void compare_layers(const std::string& what, const std::vector<NamedLayer>& layers, double share, const Make& make,
                    const BenchOptions& options, std::vector<Row>& rows) {
  const std::vector<Contender> contenders = transformed(layers, [&](const NamedLayer& layer) {
    return Contender{.name = fmt::format("{}: {}", what, layer.name), .work = make(layer.attention)};
  });
  for (Row& row : compare(contenders, options)) {
    row.seconds *= share;
    rows.push_back(std::move(row));
  }
}

// Trains the layers on inputs of each size; `shape` ends the names of the rows.
void compare_training(const std::string& shape, const std::vector<NamedLayer>& layers,
                      const std::vector<InputSize>& sizes, const BenchOptions& options, std::vector<Row>& rows) {
  for (const InputSize& size : sizes) {
    compare_layers(
        size.name() + " " + shape, layers, 1.0,
        [&](const AttentionOptions& o) { return layer_training(o, size, options); }, options, rows);
  }
}

// Decodes a token after each of these numbers of cached tokens.
void compare_decoding(const std::string& shape, const std::vector<NamedLayer>& layers,
                      const std::vector<std::int64_t>& cached, std::int64_t d_model, const BenchOptions& options,
                      std::vector<Row>& rows) {
  for (const std::int64_t tokens : cached) {
    compare_layers(
        fmt::format("a token after {}, {}", tokens, shape), layers, 1.0 / kSteps,
        [&](const AttentionOptions& o) { return decoding_steps(o, tokens, d_model, options); }, options, rows);
  }
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

std::vector<NamedLayer> recurrent_layers() {
  return {named("linear attention", 8, 64, {"score=linear", "keys=single", "position=none"}),
          named("gated delta", 8, 64, {"score=gated_delta", "position=none"})};
}

// All layers cache 256 values per token.
std::vector<NamedLayer> small_caches() {
  return {named("grouped, 2 of 16", 16, 64, {"n_kv_heads=2"}),
          named("latent, 224 and 32", 16, 96, {"projection=latent", "kv_rank=224", "d_rotary=32", "d_value=64"}),
          named("latents, 2 x 112 and 32", 16, 96,
                {"projection=latent", "kv_rank=224", "d_rotary=32", "d_value=64", "latent_groups=2"})};
}

}  // namespace

std::vector<Row> neighbours(const BenchOptions& options) {
  std::vector<Row> rows;
  compare_training("H8 e64", added_parts(8, 64), {{8, 256, 512}, {2, 1024, 512}}, options, rows);
  compare_training("H8 e64", recurrent_layers(), {{8, 256, 512}, {2, 1024, 512}}, options, rows);
  compare_decoding("d512 H8", recurrent_layers(), {512, 8192}, 512, options, rows);
  compare_training("H16", small_caches(), {{4, 512, 1024}, {1, 2048, 1024}}, options, rows);
  compare_decoding("d1024 H16", small_caches(), {512, 2048, 8192}, 1024, options, rows);
  return rows;
}

// At the sizes of `attention`: keys beyond the tokens are those of a memory.
std::vector<Row> layers(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const ops::AttentionCase& z : ops::attention_cases(ops::Role::timed)) {
    if (z.composed || z.mixture || z.relative) {
      continue;
    }
    const InputSize size{.rows = z.b, .tokens = z.t, .d_model = z.h * z.e, .memory = z.s - z.t};
    std::vector<Contender> contenders;
    for (const auto& [name, attention] : added_parts(z.h, z.e)) {
      const std::size_t reference = contenders.size();
      for (const auto& [how, implementation] :
           {std::pair("reference", Implementation::reference), std::pair("fused", Implementation::automatic)}) {
        contenders.push_back({.name = fmt::format("B{} H{} T{} S{} e{}: {}, {}", z.b, z.h, z.t, z.s, z.e, name, how),
                              .work = layer_training(attention, size, options, implementation),
                              .reference = reference});
      }
    }
    std::ranges::move(compare(contenders, options), std::back_inserter(rows));
  }
  return rows;
}

namespace {

constexpr std::int64_t kTimes = 20;  // passes per turn, to make the cost of the request negligible

struct LayerSize {
  std::int64_t batch, context_length, d_model, n_heads, d_head, n_experts, top_k;
  std::string name() const {
    return fmt::format("B{} T{} d{} H{} e{}", batch, context_length, d_model, n_heads, d_head);
  }
  Json to_json() const {
    return {{"batch", batch},   {"context_length", context_length}, {"d_model", d_model}, {"n_heads", n_heads},
            {"d_head", d_head}, {"n_experts", n_experts},           {"top_k", top_k}};
  }
};

std::vector<std::string> layer_command(const LayerSize& size, const char* layer) {
  // The package is in a sibling of this program's folder.
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return python_yardstick("python", "python_layer.py", size.to_json(),
                          {"--package", program.parent_path().parent_path() / "python", "--layer", layer});
}

// Seconds of kTimes passes of the layer in C++.
std::vector<double> passes_in_cpp(const Work& pass) {
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < kTimes; ++i) {
    seconds.push_back(seconds_of(pass));
  }
  return seconds;
}

void add_layer_rows(const LayerSize& size, const BenchOptions& options, std::vector<Row>& rows) {
  AttentionOptions switchhead = heads(size.n_heads, size.d_head);
  switchhead.projection = "experts";
  switchhead.of<config::RoutingOptions>().n_experts = size.n_experts;
  switchhead.of<config::RoutingOptions>().top_k = size.top_k;
  const Work ours = layer_training(switchhead, {size.batch, size.context_length, size.d_model}, options);
  BenchProcess module(layer_command(size, "headroom")), plain(layer_command(size, "plain"));
  const auto ask = [](BenchProcess& process) {
    return process.ask(fmt::format("run {}", kTimes)).get<std::vector<double>>();
  };
  std::vector<double> times[3];
  for (std::int64_t round = -1; round < options.repeats; ++round) {  // the first round is warm-up
    const std::vector<double> now[] = {passes_in_cpp(ours), ask(module), ask(plain)};
    for (std::size_t i = 0; i < 3 && round >= 0; ++i) {
      times[i].insert(times[i].end(), now[i].begin(), now[i].end());
    }
  }
  const double reference = median(times[0]);
  const char* names[] = {"C++", "Python", "plain PyTorch"};
  for (std::size_t i = 0; i < 3; ++i) {
    const double seconds = median(times[i]);
    rows.push_back({.name = fmt::format("SwitchHead layer {}: {}", size.name(), names[i]),
                    .seconds = seconds,
                    .ratio_to_reference = reference / seconds});
  }
}

}  // namespace

std::vector<Row> python(const BenchOptions& options) {
  if (options.device != "cpu" || options.precision != "fp32") {
    user_error("bench python: needs --device cpu and --precision fp32, got {} and {}", options.device,
               options.precision);
  }
  std::vector<Row> rows;
  add_layer_rows(
      {.batch = 8, .context_length = 256, .d_model = 412, .n_heads = 2, .d_head = 76, .n_experts = 5, .top_k = 3},
      options, rows);
  add_layer_rows(
      {.batch = 1, .context_length = 256, .d_model = 128, .n_heads = 2, .d_head = 32, .n_experts = 4, .top_k = 2},
      options, rows);
  return rows;
}

}  // namespace headroom::bench
