// Benchmarks of single attention layers: gated, sink, factored, tied, latent and routed attention against plain and
// grouped attention; and a SwitchHead layer called from C++, from headroom_torch, and written in plain PyTorch.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "headroom/config/attention/latent_options.h"
#include "headroom/config/attention/output_gate_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention/score_options.h"
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

template <class Set>
NamedLayer changed(const std::string& name, AttentionOptions o, const Set& set) {
  set(o);
  return {name, o};
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
  std::vector<Contender> contenders;
  for (const NamedLayer& layer : layers) {
    contenders.push_back({.name = fmt::format("{}: {}", what, layer.name), .work = make(layer.attention)});
  }
  for (Row& row : compare(contenders, options)) {
    row.seconds *= share;
    rows.push_back(std::move(row));
  }
}

}  // namespace

std::vector<Row> neighbours(const BenchOptions& options) {
  std::vector<Row> rows;
  const AttentionOptions plain = heads(8, 64);
  const std::vector<NamedLayer> added = {
      {"plain", plain},
      changed("sink", plain, [](AttentionOptions& o) { o.of<config::DotOptions>().sink = true; }),
      changed("gate of heads", plain, [](auto& o) { o.gate_output = "head"; }),
      changed("gate of channels", plain, [](auto& o) { o.gate_output = "element"; }),
      changed("shared and routed", plain,
              [](auto& o) {
                o.projection = "shared_and_routed";
                o.template of<config::RoutingOptions>().top_k = 4;
              }),
      changed("grouped, 4 of 8", plain, [](auto& o) { o.n_kv_heads = 4; }),
      // Also computes 8 heads per token.
      changed("routed queries, 8 of 16 in 4 groups", heads(16, 64),
              [](auto& o) {
                o.projection = "routed_queries";
                o.n_kv_heads = 4;
                o.template of<config::RoutingOptions>().gate = config::Gate::softmax_renormalised;
              }),
      changed("factored, 2 and 6", plain,
              [](AttentionOptions& o) {
                o.projection = "factored";
                o.of<config::LatentOptions>() = {.kv_rank = 2, .q_rank = 6};
              }),
      changed("tied, 2 of 8", plain,
              [](AttentionOptions& o) {
                o.projection = "tied";
                o.n_kv_heads = 2;
              }),
      changed("gate of heads from 12 channels", plain,
              [](AttentionOptions& o) {
                o.gate_output = "head";
                o.of<config::OutputGateOptions>().gate_channels = 12;
              }),
      changed("exclusive", plain, [](AttentionOptions& o) { o.of<config::OutputGateOptions>().exclusive = true; }),
      changed("linear biases", plain, [](auto& o) { o.position = "alibi"; }),
      changed("forget gates", plain, [](auto& o) { o.position = "forgetting"; })};
  for (const InputSize& z : std::vector<InputSize>{{8, 256, 512}, {2, 1024, 512}}) {
    compare_layers(
        z.name() + " H8 e64", added, 1.0, [&](const AttentionOptions& o) { return layer_training(o, z, options); },
        options, rows);
  }
  const std::vector<NamedLayer> recurrent = {changed("linear attention", plain,
                                                     [](AttentionOptions& o) {
                                                       o.score = "linear";
                                                       o.of<config::MixtureOptions>().keys = config::Keys::single;
                                                       o.position = "none";
                                                     }),
                                             changed("gated delta", plain, [](AttentionOptions& o) {
                                               o.score = "gated_delta";
                                               o.position = "none";
                                             })};
  for (const InputSize& z : std::vector<InputSize>{{8, 256, 512}, {2, 1024, 512}}) {
    compare_layers(
        z.name() + " H8 e64", recurrent, 1.0, [&](const AttentionOptions& o) { return layer_training(o, z, options); },
        options, rows);
  }
  for (const std::int64_t read : {512, 8192}) {
    compare_layers(
        fmt::format("a token after {}, d512 H8", read), recurrent, 1.0 / kSteps,
        [&](const AttentionOptions& o) { return decoding_steps(o, read, 512, options); }, options, rows);
  }
  // All layers cache 256 values per token.
  const std::vector<NamedLayer> small_caches = {
      changed("grouped, 2 of 16", heads(16, 64), [](AttentionOptions& o) { o.n_kv_heads = 2; }),
      changed("latent, 224 and 32", heads(16, 96),
              [](AttentionOptions& o) {
                o.projection = "latent";
                o.of<config::LatentOptions>().kv_rank = 224;
                o.of<config::LatentOptions>().d_rotary = 32;
                o.of<config::LatentOptions>().d_value = 64;
              }),
      changed("latents, 2 x 112 and 32", heads(16, 96), [](AttentionOptions& o) {
        o.projection = "latent";
        o.of<config::LatentOptions>() = {.kv_rank = 224, .d_rotary = 32, .d_value = 64, .latent_groups = 2};
      })};
  for (const InputSize& z : std::vector<InputSize>{{4, 512, 1024}, {1, 2048, 1024}}) {
    compare_layers(
        z.name() + " H16", small_caches, 1.0, [&](const AttentionOptions& o) { return layer_training(o, z, options); },
        options, rows);
  }
  for (const std::int64_t cached : {512, 2048, 8192}) {
    compare_layers(
        fmt::format("a token after {}, d1024 H16", cached), small_caches, 1.0 / kSteps,
        [&](const AttentionOptions& o) { return decoding_steps(o, cached, 1024, options); }, options, rows);
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
