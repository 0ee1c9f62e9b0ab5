#include "workload.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "bench.h"
#include "foundation/core/machine/system.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/models/language_model.h"
#include "timing.h"
#include "training/train/loop/train.h"

namespace headroom::bench {

nn::Context context_for(const std::string& precision, at::Device device) {
  config::TrainOptions options;
  options.precision = precision == "bf16" ? config::Precision::bf16 : config::Precision::fp32;
  return models::make_context(options, device);
}

namespace {

config::TrainOptions options_of(const StepShape& shape) {
  config::TrainOptions options;
  options.learning_rate = 1e-4;
  options.schedule = config::Schedule::constant;
  options.accumulate = shape.accumulate;
  return options;
}

}  // namespace

TrainingStep::TrainingStep(const config::ModelOptions& options, const StepShape& shape)
    : model_(models::make_model(options, 1, at::TensorOptions(shape.device).dtype(at::kFloat))),
      batch_(model_->example(shape.batch, 1)),
      context_(context_for(shape.precision, shape.device)),
      options_(options_of(shape)),
      state_(train::initial_state(model_->parameters(), options_.optimizer, parallel::default_group())),
      reducer_(train::make_gradient_reducer(*model_, options_, parallel::default_group())) {}

void TrainingStep::operator()() {
  train::train_step(*model_, batch_, state_, options_, context_, *reducer_);
}

namespace {

constexpr std::int64_t kPrompt = 64;  // default number of tokens read before decoding is timed

// Decodes tokens one by one.
class DecodingLoop {
 public:
  DecodingLoop(const config::ModelOptions& options, std::int64_t batch, std::int64_t prompt, const nn::Context& context,
               at::Device device)
      : model_(options, 1, at::TensorOptions(device).dtype(at::kFloat)),
        context_(context),
        prompt_(at::randint(options.vocabulary_size,
                            {batch, prompt > 0 ? prompt : std::min(kPrompt, options.context_length / 2)}, at::kLong)),
        token_(prompt_.narrow(1, 0, 1).contiguous()) {
    if (context.compute_dtype) {
      model_.parameters().cache_weights_in(*context.compute_dtype);
    }
  }

  void begin() {
    states_.assign(static_cast<std::size_t>(prompt_.size(0)), model_.start_decoding());
    model_.decode(models::decode_rows(prompt_, states_), context_);
  }

  void operator()() {
    if (states_.empty()) {
      begin();
    }
    model_.decode(models::decode_rows(token_, states_), context_);
  }

 private:
  models::LanguageModel model_;
  nn::Context context_;
  at::Tensor prompt_, token_;
  std::vector<models::DecodeState> states_;
};

// Computes the loss of a batch as in an evaluation: no gradients, parameters stored as for decoding.
class ForwardPass {
 public:
  ForwardPass(const config::ModelOptions& options, std::int64_t batch, const nn::Context& context, at::Device device)
      : model_(models::make_model(options, 1, at::TensorOptions(device).dtype(at::kFloat))),
        batch_(model_->example(batch, 1)),
        context_(context) {
    if (context.compute_dtype) {
      model_->parameters().cache_weights_in(*context.compute_dtype);
    }
  }

  void operator()() {
    const c10::NoGradGuard no_gradients;
    models::Memory memory;
    model_->loss(batch_, memory, context_);
  }

 private:
  std::unique_ptr<models::Model> model_;
  models::Batch batch_;
  nn::Context context_;
};

}  // namespace

config::ModelOptions WorkloadSpec::model() const {
  return config::load_config(recipe, set).model;
}

Workload WorkloadSpec::begin() const {
  const config::ModelOptions options = model();
  const at::Device where(device);
  if (work == "decode") {
    const auto decoding = std::make_shared<DecodingLoop>(options, batch, prompt, context_for(precision, where), where);
    return {.work = [decoding] { (*decoding)(); }, .prompt = [decoding] { decoding->begin(); }};
  }
  if (work == "forward") {
    const auto forward = std::make_shared<ForwardPass>(options, batch, context_for(precision, where), where);
    return {.work = [forward] { (*forward)(); }, .prompt = {}};
  }
  const auto step = std::make_shared<TrainingStep>(
      options, StepShape{.batch = batch, .accumulate = accumulate, .precision = precision, .device = where});
  return {.work = [step] { (*step)(); }, .prompt = {}};
}

Json WorkloadSpec::to_json() const {
  return {{"recipe", recipe},
          {"set", set},
          {"work", work},
          {"batch", batch},
          {"precision", precision},
          {"device", device},
          {"accumulate", accumulate},
          {"prompt", prompt}};
}

WorkloadSpec training_spec(const std::string& name, const BenchOptions& options) {
  std::vector<std::string> set = options.set;
  set.push_back("train.precision=" + options.precision);
  const config::Config config = config::load_config(name, set);
  train::check_machine(config);
  return {.recipe = name,
          .set = options.set,
          .batch = config.whole_sequences() / config.train.accumulate,
          .precision = options.precision,
          .device = options.device};
}

std::vector<std::string> four_layers() {
  return {"model.n_layers=4", "model.vocabulary_size=8000", "tokenizer.vocabulary_size=8000"};
}

std::vector<std::string> workload_command(const WorkloadSpec& spec, std::int64_t threads) {
  return {std::filesystem::read_symlink("/proc/self/exe").string(),
          "bench",
          "--quiet",
          "--threads",
          std::to_string(threads),
          "--serve",
          to_json_line(spec.to_json())};
}

int serve(const std::string& line) {
  const Json json = parse_json(line, "bench");
  const WorkloadSpec spec{.recipe = json.at("recipe").get<std::string>(),
                          .set = json.at("set").get<std::vector<std::string>>(),
                          .work = json.at("work").get<std::string>(),
                          .batch = json.at("batch").get<std::int64_t>(),
                          .precision = json.at("precision").get<std::string>(),
                          .device = json.at("device").get<std::string>(),
                          .accumulate = json.at("accumulate").get<std::int64_t>(),
                          .prompt = json.at("prompt").get<std::int64_t>()};
  reset_peak_memory();
  const std::int64_t before = resident_memory_bytes();
  const Workload workload = spec.begin();
  for (std::string request; std::getline(std::cin, request) && request != "quit";) {
    if (request == "memory") {
      std::cout << peak_memory_bytes() - before << std::endl;
    } else if (request == "prompt" && workload.prompt) {
      std::cout << seconds_of(workload.prompt, at::Device(spec.device)) << std::endl;
    } else if (request.starts_with("run ")) {
      Json seconds = Json::array();
      for (int left = std::stoi(request.substr(4)); left > 0; --left) {
        seconds.push_back(seconds_of(workload.work, at::Device(spec.device)));
      }
      std::cout << seconds.dump() << std::endl;
    } else {
      fail("bench: unknown request '{}' to a workload", request);
    }
  }
  return 0;
}

}  // namespace headroom::bench
