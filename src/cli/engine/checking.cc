// The commands bench and doctor.
#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>

#include "engine.h"
#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/models/compute.h"
#include "headroom/ops/choice.h"
#include "tools/bench/bench.h"
#include "training/train/step/step.h"

namespace headroom::cli {

namespace {

// Whether the arguments after these benchmarks are configs.
bool takes_configs(const std::vector<std::string>& names) {
  return !names.empty() && (names.front() == "generation" || names.front() == "evaluate");
}

}  // namespace

int run(const Bench& command, const EngineRequest& request) {
  if (!command.serve.empty()) {
    return bench::serve(command.serve);
  }
  const std::vector<std::string> known(std::begin(bench::kBenchNames), std::end(bench::kBenchNames));
  std::vector<std::string> names = command.names;
  bench::BenchOptions options = command.options;
  if (takes_configs(names)) {
    options.configs.insert(options.configs.end(), names.begin() + 1, names.end());
    names.resize(1);
  }
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end()) {
      user_error("bench: {}: unknown benchmark; choose among {}", name, fmt::join(known, ", "));
    }
  }
  const bool profiles = names == std::vector<std::string>{"profile"};
  if (!(options.configs.empty() && options.set.empty()) && !profiles && !takes_configs(names)) {
    user_error("bench: {}: only for `bench profile`, `generation` and `evaluate`, got {}",
               options.configs.empty() ? "--set" : "--config",
               names.empty() ? "all benchmarks" : fmt::format("{}", fmt::join(names, ", ")));
  }
  for (const std::string& config : options.configs) {
    config::load_config(config, options.set);  // reports errors before anything is printed
  }
  options.threads = request.threads;
  options.device = models::resolve(options.device).str();
  if (names == std::vector<std::string>{"generation"}) {
    bench::check_generation(options);
  }
  request.output.text(fmt::format("{}, {}, {} vectors, tiles by {}\n\n", cpu_name(),
                                  counted(options.threads > 0 ? options.threads : physical_cores(), "thread"),
                                  kernels::simd_target(), kernels::tile_product_target()));
  std::vector<bench::Row> all;
  for (const std::string& name : names.empty() ? known : names) {
    const std::vector<bench::Row> rows = bench::run(name, options);
    request.output.text(fmt::format("{}\n{}\n", name, bench::to_table(rows)));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  request.output.document(bench::to_json(all));
  return 0;
}

namespace {

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

// Returns the config, reduced in size where that does not change which operators run.
config::Config small_config(const Doctor& command) {
  config::Config config = config::load_config(command.config, command.set);
  config::ModelOptions& model = config.model;
  model.n_layers = std::min<std::int64_t>(model.n_layers, 2);
  model.n_groups = 0;
  model.n_decoder_layers = std::min<std::int64_t>(model.n_decoder_layers, 2);
  if (model.reads_tokens()) {
    model.vocabulary_size = model.adaptive_cutoffs.empty() ? 16 : model.vocabulary_size;
    model.context_length = std::min<std::int64_t>(model.context_length, 64);
    model.memory_length = std::min<std::int64_t>(model.memory_length, 64);
  }
  config.train.accumulate = 1;
  return config;
}

// Runs a training step to record which implementation each operator takes.
void try_step(const config::Config& config, at::Device device, std::optional<at::ScalarType> compute_dtype) {
  const auto model = models::make_model(config.model, 1, at::TensorOptions(at::kFloat).device(device));
  nn::Context context;
  context.compute_dtype = compute_dtype;
  train::TrainState state = train::initial_state(model->parameters(), config.train.optimizer);
  train::train_step(*model, model->example(1, 1), state, config.train, context);
}

// Returns "fused: " and the backends that ran.
std::string names_of(const ops::ImplementationCounts& choices) {
  std::string text;
  for (const auto& [backend, calls] : choices.backends) {
    text += (text.empty() ? ": " : ", ") + backend;
  }
  return "fused" + text;
}

// Returns {"attention": {"cpu fp32": "fused: kernels", "cpu bf16": "reference: kernels: only float32"}, ...}.
Json implementations(const config::Config& config) {
  Json all = Json::object();
  for (const at::Device& device : models::devices()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      ops::reset_implementation_counts();
      try_step(config, device, dtype == at::kFloat ? std::nullopt : std::optional(dtype));
      const std::string where = device.str() + (dtype == at::kFloat ? " fp32" : " bf16");
      for (const auto& [op, choices] : ops::implementation_counts()) {
        all[op][where] = choices.reference == 0 ? names_of(choices) : "reference: " + choices.refusal;
      }
    }
  }
  return all;
}

std::string word(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Formats as "key: value", with lists on one line and nested objects indented.
std::string render(const Json& object, int indent = 0) {
  std::string text;
  for (const auto& [key, value] : object.items()) {
    text += fmt::format("{:{}}{}:", "", indent, key);
    if (value.is_object()) {
      text += fmt::format("\n{}", render(value, indent + 2));
      continue;
    }
    for (const Json& item : value.is_array() ? value : Json::array({value})) {
      text += fmt::format(" {}", word(item));
    }
    text += '\n';
  }
  return text;
}

// Returns the folder of prepared data, or the reason why there is none.
std::string cache_or_why() {
  try {
    return cache_folder();
  } catch (const Error& error) {
    return fmt::format("none ({})", error.what());
  }
}

}  // namespace

int run(const Doctor& command, const EngineRequest& request) {
  Json names = Json::array();
  for (const at::Device& device : models::devices()) {
    names.push_back(device.str());
  }
  const auto memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  const Json document = {
      {"headroom", HEADROOM_VERSION},
      {"torch", TORCH_VERSION},
      {"compiler", kCompiler},
      {"cpu", cpu_name()},
      {"cpu_features", cpu_features()},
      {"vectors", kernels::simd_target()},
      {"tile_products", kernels::tile_product_target()},
      {"physical_cores", physical_cores()},
      {"threads", at::get_num_threads()},
      {"memory", format_bytes(memory)},
      {"allocator", allocator()},
      {"devices", names},
      {"cuda", "tested on an H100 with torch 2.11 for CUDA 13; releases are tested on an emulated device"},
      {"precision_auto", config::name_of(models::resolve(config::Precision::automatic, models::resolve("auto")))},
      {"recipes", home_folder() + "/recipes"},
      {"cache", cache_or_why()},
      {"config", command.config},
      {"operators", implementations(small_config(command))}};
  request.output.text(render(document));
  request.output.document(document);
  return 0;
}

}  // namespace headroom::cli
