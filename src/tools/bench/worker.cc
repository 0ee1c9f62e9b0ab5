#include "worker.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iostream>

#include "bench.h"
#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "foundation/core/machine/system.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/models/language_model.h"
#include "timing.h"
#include "training_step.h"

namespace headroom::bench {
namespace {

constexpr std::int64_t kPrompt = 64;  // tokens read before decoding is timed, where it is not said how many

// One token after another.
class Decoding {
 public:
  Decoding(const config::ModelOptions& options, std::int64_t batch, std::int64_t prompt, const nn::Context& context,
           at::Device device)
      : model_(options, 1, at::TensorOptions(device).dtype(at::kFloat)),
        context_(context),
        prompt_(at::randint(options.vocabulary_size,
                            {batch, prompt > 0 ? prompt : std::min(kPrompt, options.context_length / 2)}, at::kLong)),
        token_(prompt_.narrow(1, 0, 1).contiguous()) {
    if (context.compute_dtype) {
      model_.parameters().keep_products_in(*context.compute_dtype);
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

  // 10^9 bytes a second of reading every weight once: the memory that tokens are read from, where it lies.
  double bandwidth() const {
    if (const at::Device device = model_.device(); !device.is_cpu()) {
      return machine_limits("fp32", device).bandwidth_gb;
    }
    constexpr std::int64_t kPiece = 1 << 15;
    struct Piece {
      const float* data;
      std::int64_t n;
    };
    std::vector<Piece> pieces;
    double bytes = 0.0;
    for (const nn::Parameter& p : model_.parameters().all()) {
      const auto words = static_cast<std::int64_t>(p.tensor.nbytes() / sizeof(float));  // of whatever is kept there
      for (std::int64_t at = 0; at < words; at += kPiece) {
        pieces.push_back({static_cast<const float*>(p.tensor.const_data_ptr()) + at, std::min(kPiece, words - at)});
        bytes += static_cast<double>(pieces.back().n) * sizeof(float);
      }
    }
    std::atomic<float> sum = 0.0F;
    const double seconds = seconds_of([&] {
      at::parallel_for(0, static_cast<std::int64_t>(pieces.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        float part = 0.0F;
        for (std::int64_t i = begin; i < end; ++i) {
          part += kernels::dot(pieces[i].data, pieces[i].data, pieces[i].n);
        }
        sum += part;
      });
    });
    return bytes / seconds * 1e-9;
  }

 private:
  models::LanguageModel model_;
  nn::Context context_;
  at::Tensor prompt_, token_;
  std::vector<models::DecodeState> states_;
};

// The loss of a batch, as in an evaluation: no gradients, parameters kept as decoding keeps them.
class Reading {
 public:
  Reading(const config::ModelOptions& options, std::int64_t batch, const nn::Context& context, at::Device device)
      : model_(models::make_model(options, 1, at::TensorOptions(device).dtype(at::kFloat))),
        batch_(model_->example(batch, 1)),
        context_(context) {
    if (context.compute_dtype) {
      model_->parameters().keep_products_in(*context.compute_dtype);
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

config::ModelOptions WorkerSpec::model() const {
  return config::load_config(recipe, set).model;
}

Job WorkerSpec::begin() const {
  const config::ModelOptions options = model();
  const at::Device where(device);
  if (work == "decode") {
    const auto decoding = std::make_shared<Decoding>(options, batch, prompt, context_for(precision, where), where);
    return {.work = [decoding] { (*decoding)(); },
            .bandwidth = [decoding] { return decoding->bandwidth(); },
            .prompt = [decoding] { decoding->begin(); }};
  }
  if (work == "forward") {
    const auto reading = std::make_shared<Reading>(options, batch, context_for(precision, where), where);
    return {.work = [reading] { (*reading)(); }, .bandwidth = {}, .prompt = {}};
  }
  const auto step = std::make_shared<TrainingStep>(
      options, StepShape{.batch = batch, .accumulate = accumulate, .precision = precision, .device = where});
  return {.work = [step] { (*step)(); }, .bandwidth = {}, .prompt = {}};
}

Json WorkerSpec::to_json() const {
  return {{"recipe", recipe},
          {"set", set},
          {"work", work},
          {"batch", batch},
          {"precision", precision},
          {"device", device},
          {"accumulate", accumulate},
          {"prompt", prompt}};
}

std::vector<std::string> four_layers() {
  return {"model.n_layers=4", "model.vocabulary_size=8000", "tokenizer.vocabulary_size=8000"};
}

namespace {

std::vector<std::string> worker_command(const WorkerSpec& spec, std::int64_t threads) {
  return {std::filesystem::read_symlink("/proc/self/exe").string(),
          "bench",
          "--quiet",
          "--threads",
          std::to_string(threads),
          "--serve",
          to_json_line(spec.to_json())};
}

}  // namespace

YardstickProcess start_worker(const WorkerSpec& spec) {
  return YardstickProcess(worker_command(spec, at::get_num_threads()));
}

Workers::Workers(const WorkerSpec& spec, int processes, std::int64_t threads) {
  for (int rank = 0; rank < processes; ++rank) {
    processes_.push_back(std::make_unique<YardstickProcess>(
        worker_command(spec, threads),
        processes > 1 ? rendezvous_.variables(rank, processes) : YardstickProcess::Environment()));
  }
}

Workers::~Workers() {
  for (const auto& process : processes_) {
    process->send("quit");
  }
}

void Workers::run() {
  for (const auto& process : processes_) {
    process->send("run 1");
  }
  for (const auto& process : processes_) {
    process->answer();
  }
}

std::vector<std::int64_t> Workers::memory() {
  std::vector<std::int64_t> all;
  for (const auto& process : processes_) {
    all.push_back(process->ask("memory").get<std::int64_t>());
  }
  return all;
}

int serve(const std::string& line) {
  const Json json = parse_json(line, "bench");
  const WorkerSpec spec{.recipe = json.at("recipe").get<std::string>(),
                        .set = json.at("set").get<std::vector<std::string>>(),
                        .work = json.at("work").get<std::string>(),
                        .batch = json.at("batch").get<std::int64_t>(),
                        .precision = json.at("precision").get<std::string>(),
                        .device = json.at("device").get<std::string>(),
                        .accumulate = json.at("accumulate").get<std::int64_t>(),
                        .prompt = json.at("prompt").get<std::int64_t>()};
  reset_peak_memory();
  const std::int64_t before = resident_memory_bytes();
  const Job job = spec.begin();
  for (std::string question; std::getline(std::cin, question) && question != "quit";) {
    if (question == "memory") {
      std::cout << peak_memory_bytes() - before << std::endl;
    } else if (question == "prompt" && job.prompt) {
      std::cout << seconds_of(job.prompt, at::Device(spec.device)) << std::endl;
    } else if (question == "bandwidth" && job.bandwidth) {
      std::cout << job.bandwidth() << std::endl;
    } else if (question.starts_with("run ")) {
      Json seconds = Json::array();
      for (int left = std::stoi(question.substr(4)); left > 0; --left) {
        seconds.push_back(seconds_of(job.work, at::Device(spec.device)));
      }
      std::cout << seconds.dump() << std::endl;
    } else {
      fail("bench: '{}' is no question", question);
    }
  }
  return 0;
}

}  // namespace headroom::bench
