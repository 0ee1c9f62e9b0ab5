#include "workload.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/models/language_model.h"
#include "timing.h"
#include "training/train/loop/train.h"
#include "training/train/step/step.h"

namespace headroom::bench {

nn::Context context_for(const std::string& precision, at::Device device) {
  config::TrainOptions options;
  options.precision = precision == "bf16" ? config::Precision::bf16 : config::Precision::fp32;
  return models::make_context(options, device);
}

namespace {

Workload training_step(const WorkloadSpec& spec, std::shared_ptr<models::Model> model, const nn::Context& context) {
  config::TrainOptions options;
  options.learning_rate = 1e-4;
  options.schedule = config::Schedule::constant;
  options.accumulate = spec.accumulate;
  parallel::GlooGroup& group = parallel::default_group();
  const auto state =
      std::make_shared<train::TrainState>(train::initial_state(model->parameters(), options.optimizer, group));
  const std::shared_ptr<train::GradientReducer> reducer = train::make_gradient_reducer(*model, options, group);
  return {.work = [=, batch = model->example(
                          spec.batch, 1)] { train::train_step(*model, batch, *state, options, context, *reducer); },
          .prompt = {}};
}

// Decodes tokens one by one.
Workload decoding(const WorkloadSpec& spec, const std::shared_ptr<models::Model>& model, const nn::Context& context) {
  constexpr std::int64_t kPrompt = 64;
  const config::ModelOptions& o = model->options();
  const std::int64_t length = spec.prompt > 0 ? spec.prompt : std::min(kPrompt, o.context_length / 2);
  const at::Tensor prompt = at::randint(o.vocabulary_size, {spec.batch, length}, at::kLong),
                   token = prompt.narrow(1, 0, 1).contiguous();
  const auto states = std::make_shared<std::vector<models::DecodeState>>();
  const auto read = [=](const at::Tensor& tokens) {
    models::as_language_model(*model, "bench").decode(models::decode_rows(tokens, *states), context);
  };
  const auto begin = [=] {
    states->assign(static_cast<std::size_t>(prompt.size(0)),
                   models::as_language_model(*model, "bench").start_decoding());
    read(prompt);
  };
  return {.work =
              [=] {
                if (states->empty()) {
                  begin();
                }
                read(token);
              },
          .prompt = begin};
}

// Computes the loss of a batch as in an evaluation, without gradients.
Workload forward_pass(const WorkloadSpec& spec, const std::shared_ptr<models::Model>& model,
                      const nn::Context& context) {
  return {.work =
              [=, batch = model->example(spec.batch, 1)] {
                const c10::NoGradGuard no_gradients;
                models::Memory memory;
                model->loss(batch, memory, context);
              },
          .prompt = {}};
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkloadSpec, recipe, set, work, batch, precision, device, accumulate, prompt)

config::ModelOptions WorkloadSpec::model() const {
  return config::load_config(recipe, set).model;
}

Workload WorkloadSpec::begin(const config::ModelOptions& options) const {
  const at::Device where(device);
  const std::shared_ptr<models::Model> model =
      models::make_model(options, 1, at::TensorOptions(where).dtype(at::kFloat));
  const nn::Context context = context_for(precision, where);
  if (work == "step") {
    return training_step(*this, model, context);
  }
  if (context.compute_dtype) {
    model->parameters().cache_weights_in(*context.compute_dtype);
  }
  return work == "decode" ? decoding(*this, model, context) : forward_pass(*this, model, context);
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
          to_json_line(SortedJson(spec))};
}

int serve(const std::string& line) {
  const auto spec = parse_sorted_json(line, "bench").get<WorkloadSpec>();
  reset_peak_memory();
  const std::int64_t before = resident_memory_bytes();
  const Workload workload = spec.begin(spec.model());
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

std::vector<std::string> python_baseline(const std::string& benchmark, const std::string& script, const Json& size,
                                         const std::vector<std::string>& more) {
  const std::string home = home_folder();
  const char* chosen = std::getenv("HEADROOM_PYTHON");
  const std::string python = chosen != nullptr ? chosen : home + "/.env/bin/python3";
  if (!std::filesystem::exists(python)) {
    fail("bench {}: {}: not found, a Python with torch is needed; run ./run.sh setup or set HEADROOM_PYTHON", benchmark,
         python);
  }
  std::vector<std::string> command = {python,      home + "/bench/" + script,
                                      "--threads", std::to_string(at::get_num_threads()),
                                      "--size",    to_json_line(size)};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

BenchProcess::BenchProcess(const std::vector<std::string>& command, const Environment& environment)
    : name_(command.at(0)) {
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0) {
    fail("bench: {}: cannot start the program: {}", name_, std::strerror(errno));
  }
  std::vector<char*> arguments =
      transformed(command, [&](const std::string& part) { return const_cast<char*>(part.c_str()); });
  arguments.push_back(nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    for (const int descriptor : {in[0], in[1], out[0], out[1]}) {
      close(descriptor);
    }
    for (const auto& [name, value] : environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (pid_ < 0) {
    fail("bench: {}: cannot start the program: {}", name_, std::strerror(errno));
  }
}

BenchProcess::~BenchProcess() {
  const std::string_view quit = "quit\n";
  [[maybe_unused]] const auto written = write(to_, quit.data(), quit.size());
  close(to_);
  close(from_);
  waitpid(pid_, nullptr, 0);
}

Json BenchProcess::ask(const std::string& line) {
  send(line);
  return answer();
}

void BenchProcess::send(const std::string& line) {
  asked_ = line;
  const std::string question = line + "\n";
  [[maybe_unused]] const auto written =
      write(to_, question.data(), question.size());  // answer() reports a process that has exited
}

Json BenchProcess::answer() {
  std::string text;
  char c = 0;
  while (read(from_, &c, 1) == 1 && c != '\n') {
    text += c;
  }
  if (text.empty()) {
    fail("bench: {}: exited without answering '{}'", name_, asked_);
  }
  return parse_json(text, name_);
}

std::unique_ptr<BenchProcess> start_if_available(const std::vector<std::string>& command, const std::string& missing) {
  auto process = std::make_unique<BenchProcess>(command);
  try {
    process->ask("run 1");
  } catch (const Error&) {
    log_warning("bench {}", missing);
    return nullptr;
  }
  return process;
}

BenchRanks::BenchRanks(const std::vector<std::string>& command, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    processes_.push_back(std::make_unique<BenchProcess>(
        command, ranks > 1 ? rendezvous_.variables(rank, ranks) : BenchProcess::Environment()));
  }
}

BenchRanks::~BenchRanks() {
  for (const auto& process : processes_) {
    process->send("quit");
  }
}

void BenchRanks::run() {
  ask("run 1");
}

std::int64_t BenchRanks::memory() {
  return max_over(
      ask("memory"), [](const Json& bytes) { return bytes.get<std::int64_t>(); }, std::int64_t{0});
}

std::vector<Json> BenchRanks::ask(const std::string& line) {
  for (const auto& process : processes_) {
    process->send(line);
  }
  return transformed(processes_, [&](const auto& process) { return process->answer(); });
}

}  // namespace headroom::bench
