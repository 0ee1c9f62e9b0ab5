// Benchmarks of the serving engine: eight requests against one, one against a plain loop, the first token of a long
// prompt while other requests are decoded, and eight requests against transformers' generate().
#include <fmt/format.h>

#include "headroom/config/config.h"
#include "headroom/decode/engine.h"
#include "timing.h"
#include "workload.h"

namespace headroom::bench {
namespace {

constexpr std::int64_t kServedTogether = 8, kServedPrompt = 16, kServedTokens = 128, kLongPrompt = 512;

// A model with random parameters, stored as for decoding.
struct Served {
  models::LanguageModel model;
  nn::Context context;

  Served(const config::ModelOptions& options, const BenchOptions& bench)
      : model(options, 1, at::TensorOptions(at::Device(bench.device)).dtype(at::kFloat)),
        context(context_for(bench.precision, at::Device(bench.device))) {
    if (context.compute_dtype) {
      model.parameters().cache_weights_in(*context.compute_dtype);
    }
  }

  std::vector<std::int64_t> prompt(std::int64_t n, std::int64_t seed) const {
    at::manual_seed(static_cast<std::uint64_t>(seed));
    const at::Tensor ids = at::randint(model.options().vocabulary_size, {n}, at::kLong);
    return {ids.const_data_ptr<std::int64_t>(), ids.const_data_ptr<std::int64_t>() + n};
  }

  decode::EngineOptions engine_options() const { return {.max_rows = kServedTogether, .context = context}; }

  decode::Request request(std::int64_t n, std::int64_t seed, std::int64_t tokens) const {
    return {.prompt = prompt(n, seed), .max_tokens = tokens, .temperature = 0.0};
  }

  // Generates kServedTokens tokens for each request.
  void serve(std::int64_t requests) const {
    decode::Engine engine(model, engine_options());
    for (std::int64_t i = 0; i < requests; ++i) {
      engine.add(
          request(kServedPrompt, i, kServedTokens), [](const decode::TokenEvent&) { return true; },
          [](const decode::Ending&) {});
    }
    while (engine.step()) {
    }
  }

  // Generates the same number of tokens for one request without an engine.
  void loop() const {
    models::DecodeState state = model.start_decoding();
    std::vector<std::int64_t> tokens = prompt(kServedPrompt, 0);
    for (std::int64_t i = 0; i < kServedTokens; ++i) {
      const models::DecodeRow row{&state, tokens};
      tokens = {model.decode({&row, 1}, context)[0].argmax().item<std::int64_t>()};
    }
  }
};

// Measures the time to the first token of a long prompt while `others` requests are being decoded.
class FirstToken {
 public:
  FirstToken(const Served& served, std::int64_t others)
      : served_(served), engine_(served.model, served.engine_options()) {
    constexpr std::int64_t kForEver = 1 << 30;
    for (std::int64_t i = 0; i < others; ++i) {
      add(served_.request(kServedPrompt, i, kForEver));
    }
    for (std::int64_t i = 0; i < 2 * others + 4; ++i) {
      engine_.step();
    }
  }
  void operator()() {
    bool here = false;
    engine_.add(
        served_.request(kLongPrompt, ++prompts_, 1),
        [&](const decode::TokenEvent&) {
          here = true;
          return true;
        },
        [](const decode::Ending&) {});
    while (!here) {
      engine_.step();
    }
  }
  void step() { engine_.step(); }

 private:
  void add(decode::Request request) {
    engine_.add(
        std::move(request), [](const decode::TokenEvent&) { return true; }, [](const decode::Ending&) {});
  }
  const Served& served_;
  decode::Engine engine_;
  std::int64_t prompts_ = 0;
};

void add_switchhead_rows(const BenchOptions& options, std::vector<Row>& rows) {
  const Served served(config::load_config("switchhead/wt103_47m").model, options);
  FirstToken alone(served, 0), among(served, kServedTogether - 1);
  const std::vector<double> times =
      medians_in_turn({[&] { served.loop(); }, [&] { served.serve(1); }, [&] { served.serve(kServedTogether); },
                       [&] { alone(); }, [&] { among(); }, [&] { among.step(); }},
                      options);
  const double loop = times[0] / kServedTokens, one = times[1] / kServedTokens,
               many = times[2] / (kServedTokens * kServedTogether);
  rows.push_back({.name = "47M SwitchHead, a token: a loop of one text", .seconds = loop, .ratio_to_reference = 1.0});
  rows.push_back({.name = "one request", .seconds = one, .ratio_to_reference = loop / one});
  rows.push_back({.name = fmt::format("{} requests, against one", kServedTogether),
                  .seconds = many,
                  .ratio_to_reference = one / many});
  rows.push_back(
      {.name = fmt::format("first token of {}: alone", kLongPrompt), .seconds = times[3], .ratio_to_reference = 1.0});
  rows.push_back({.name = fmt::format("while {} others are continued", kServedTogether - 1),
                  .seconds = times[4],
                  .ratio_to_reference = times[3] / times[4]});
  rows.push_back({.name = fmt::format("a step of those {}", kServedTogether - 1), .seconds = times[5]});
}

// The shape of an imported Llama with 51 million parameters.
config::ModelOptions llama() {
  config::ModelOptions o;
  o.vocabulary_size = 50257;
  o.n_layers = 8;
  o.d_model = 512;
  o.context_length = 1024;
  o.norm = config::Norm::rms;
  o.tied_embeddings = true;
  o.head_bias = false;
  o.attention.n_heads = 8;
  o.attention.d_head = 64;
  o.attention.position = "rope";
  o.mlp.kind = config::MlpKind::gated;
  o.mlp.activation = config::Activation::silu;
  o.mlp.d_hidden = 1376;
  o.mlp.bias = false;
  return o;
}

std::vector<std::string> transformers_command(const config::ModelOptions& o, const BenchOptions& options,
                                              std::int64_t rows) {
  const Json size = {{"vocabulary_size", o.vocabulary_size},
                     {"n_layers", o.n_layers},
                     {"n_heads", o.attention.n_heads},
                     {"d_model", o.d_model},
                     {"d_hidden", o.mlp.d_hidden},
                     {"context_length", o.context_length},
                     {"rows", rows},
                     {"prompt", kServedPrompt},
                     {"tokens", kServedTokens}};
  return python_baseline("serving", "transformers_generate.py", size, {"--precision", options.precision});
}

void add_llama_rows(const BenchOptions& options, std::vector<Row>& rows) {
  const config::ModelOptions o = llama();
  const Served served(o, options);
  for (const std::int64_t requests : {std::int64_t{1}, kServedTogether}) {
    const std::unique_ptr<BenchProcess> theirs =  // null if transformers is not installed
        start_if_available(transformers_command(o, options, requests),
                           "serving: transformers is not installed in the baseline's Python; left out");
    std::vector<Work> work = {[&] { served.serve(requests); }};
    if (theirs) {
      work.emplace_back([&] { theirs->ask("run 1"); });
    }
    BenchOptions few = options;
    few.repeats = std::min<std::int64_t>(options.repeats, 5);
    const std::vector<double> times = medians_in_turn(work, few);
    const auto tokens = static_cast<double>(kServedTokens * requests);
    Row ours{.name = fmt::format("51M Llama, a token: {} request{}", requests, requests == 1 ? "" : "s"),
             .seconds = times[0] / tokens};
    if (theirs) {
      ours.ratio_to_reference = times[1] / times[0];
      rows.push_back(
          {.name = fmt::format("51M Llama, a token: transformers, {} text{}", requests, requests == 1 ? "" : "s"),
           .seconds = times[1] / tokens,
           .ratio_to_reference = 1.0});
    }
    rows.push_back(std::move(ours));
  }
}

}  // namespace

std::vector<Row> serving(const BenchOptions& options) {
  std::vector<Row> rows;
  add_switchhead_rows(options, rows);
  add_llama_rows(options, rows);
  return rows;
}

}  // namespace headroom::bench
