// The commands doctor and bits.
#include <ATen/Parallel.h>
#include <stdlib.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "engine.h"
#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/models/compute.h"
#include "headroom/ops/choice.h"
#include "tools/bits/bits.h"
#include "training/train/step/step.h"

namespace headroom::cli {

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

namespace {

// A temporary folder, removed at the end.
struct Scratch {
  std::filesystem::path path;
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "headroom-bits-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      fail("bits: {}: cannot create a folder: {}", name, std::strerror(errno));
    }
    path = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

}  // namespace

int run(const Bits& /*command*/, const EngineRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  const Scratch scratch;
  const bits::BitsRequest asked{.program = std::filesystem::read_symlink("/proc/self/exe"),
                                .folder = scratch.path,
                                .threads = std::max<std::int64_t>(2, at::get_num_threads())};
  log_info("bits: checks serving and evaluation");
  std::vector<bits::Check> checks = bits::check_inference(asked);
  log_info("bits: checks training, in child processes");
  const std::vector<bits::Check> training = bits::check_training(asked);
  checks.insert(checks.begin(), training.begin(), training.end());
  const bool equal = bits::all_equal(checks);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  request.output.text(bits::render_table(checks) +
                      fmt::format("\n{} on {}, {} threads, {:.0f} s\n",
                                  equal ? "all promises hold" : "some promises do not hold", cpu_name(), asked.threads,
                                  seconds));
  request.output.document({{"checks", bits::to_json(checks)},
                           {"equal", equal},
                           {"cpu", cpu_name()},
                           {"threads", asked.threads},
                           {"seconds", seconds}});
  return equal ? 0 : 1;
}

}  // namespace headroom::cli
