// Attention layers that people compare with: gated, with a sink, and latent, against plain and grouped ones.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>

#include "headroom/nn/attention.h"
#include "timing.h"

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

// A layer with its parameters.
struct Built {
  nn::Parameters parameters;
  nn::Attention layer;
  nn::Context context;

  Built(const AttentionOptions& o, std::int64_t d_model, std::int64_t tokens, const BenchOptions& options)
      : layer(o, {.d_model = d_model, .context_length = tokens},
              nn::Builder(parameters, at::make_generator<at::CPUGeneratorImpl>(1),
                          at::TensorOptions(at::Device(options.device)).dtype(at::kFloat))) {
    if (options.precision == "bf16") {
      context.compute_dtype = at::kBFloat16;
    }
  }
};

struct Batch {
  std::int64_t rows, tokens, d_model;
  std::string name() const { return fmt::format("B{} T{} d{}", rows, tokens, d_model); }
};

// Forward and backward pass of a whole layer.
Work training(const AttentionOptions& o, const Batch& z, const BenchOptions& options) {
  const auto built = std::make_shared<Built>(o, z.d_model, z.tokens, options);
  const at::Tensor x = at::randn({z.rows, z.tokens, z.d_model}, type_of(options)).requires_grad_(true);
  std::vector<at::Tensor> leaves = {x};
  for (const nn::Parameter& p : built->parameters.all()) {
    leaves.push_back(p.tensor);
  }
  return [=] {
    const at::Tensor y = built->layer({.x = x}, built->context);
    torch::autograd::grad({y}, leaves, {at::ones_like(y)}, {}, false, /*allow_unused=*/true);
  };
}

constexpr std::int64_t kSteps = 4;  // tokens in one measurement

// The next tokens of a sequence, of which so many are in the cache.
Work decoding_steps(const AttentionOptions& o, std::int64_t held, std::int64_t d_model, const BenchOptions& options) {
  const at::NoGradGuard no_grad;
  const std::int64_t capacity = held + kSteps * (options.repeats + 2);
  const auto built = std::make_shared<Built>(o, d_model, capacity, options);
  if (built->context.compute_dtype) {
    built->parameters.cache_weights_in(at::kBFloat16);
  }
  const auto cache = std::make_shared<nn::AttentionCache>(built->layer.make_cache());
  const at::Tensor x = at::randn({1, held, d_model}, type_of(options)), next = x.narrow(1, 0, 1).contiguous();
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

// The first layer is what the others are compared with.
template <class Make>
void compare(const std::string& what, const std::vector<NamedLayer>& layers, double share, const Make& make,
             const BenchOptions& options, std::vector<Row>& rows) {
  std::vector<Work> work;
  for (const NamedLayer& layer : layers) {
    work.push_back(make(layer.attention));
  }
  const std::vector<double> times = medians_in_turn(work, options);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    rows.push_back({.name = fmt::format("{}: {}", what, layers[i].name),
                    .seconds = times[i] * share,
                    .ratio_to_reference = times[0] / times[i]});
  }
}

}  // namespace

std::vector<Row> neighbours(const BenchOptions& options) {
  std::vector<Row> rows;
  const AttentionOptions plain = heads(8, 64);
  const std::vector<NamedLayer> added = {
      {"plain", plain},
      changed("sink", plain, [](AttentionOptions& o) { o.sink = true; }),
      changed("gate of heads", plain, [](auto& o) { o.gate_output = "head"; }),
      changed("gate of channels", plain, [](auto& o) { o.gate_output = "element"; })};
  for (const Batch& z : std::vector<Batch>{{8, 256, 512}, {2, 1024, 512}}) {
    compare(
        z.name() + " H8 e64", added, 1.0, [&](const AttentionOptions& o) { return training(o, z, options); }, options,
        rows);
  }
  // 256 numbers a token are kept of either.
  const std::vector<NamedLayer> cached = {
      changed("grouped, 2 of 16", heads(16, 64), [](AttentionOptions& o) { o.n_kv_heads = 2; }),
      changed("latent, 224 and 32", heads(16, 96), [](AttentionOptions& o) {
        o.projection = "latent";
        o.kv_rank = 224;
        o.d_rotary = 32;
        o.d_value = 64;
      })};
  for (const Batch& z : std::vector<Batch>{{4, 512, 1024}, {1, 2048, 1024}}) {
    compare(
        z.name() + " H16", cached, 1.0, [&](const AttentionOptions& o) { return training(o, z, options); }, options,
        rows);
  }
  for (const std::int64_t held : {512, 2048, 8192}) {
    compare(
        fmt::format("a token after {}, d1024 H16", held), cached, 1.0 / kSteps,
        [&](const AttentionOptions& o) { return decoding_steps(o, held, 1024, options); }, options, rows);
  }
  return rows;
}

}  // namespace headroom::bench
