// Benchmarks of whole models, each in a child process and timed in turn: training steps and decoding of the papers'
// models against their dense baselines, and losses and generation of any configs.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "timing.h"
#include "training/cost/cost.h"
#include "workload.h"

namespace headroom::bench {
namespace {

// Starts a child process for each workload, with the precision and device of the options.
std::vector<std::unique_ptr<BenchProcess>> started(const std::vector<WorkloadSpec>& specs,
                                                   const BenchOptions& options) {
  std::vector<std::unique_ptr<BenchProcess>> processes;
  for (WorkloadSpec spec : specs) {
    spec.precision = options.precision;
    spec.device = options.device;
    processes.push_back(std::make_unique<BenchProcess>(workload_command(spec, at::get_num_threads())));
  }
  return processes;
}

void report_memory(Row& row, BenchProcess& process, const BenchOptions& options) {
  if (at::Device(options.device).is_cpu()) {
    row.peak_memory_bytes = process.ask("memory").get<std::int64_t>();
  }
}

struct TimedModel {
  std::string name;
  WorkloadSpec spec;
  double macs = 0.0;  // per timed unit of work
};

// Returns one row per model; the first model is the reference.
std::vector<Row> compare_models(const std::vector<TimedModel>& models, const BenchOptions& options) {
  machine_limits(options);  // measured before the models allocate memory
  std::vector<WorkloadSpec> specs = transformed(models, &TimedModel::spec);
  const auto processes = started(specs, options);
  std::vector<Contender> contenders;
  for (std::size_t i = 0; i < models.size(); ++i) {
    contenders.push_back({.name = models[i].name,
                          .work = [process = processes[i].get()] { process->ask("run 1"); },
                          .flops = 2.0 * models[i].macs});
  }
  std::vector<Row> rows = compare(contenders, options);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    report_memory(rows[i], *processes[i], options);
  }
  return rows;
}

TimedModel training_step(const std::string& name, const WorkloadSpec& spec) {
  return {name, spec, static_cast<double>(cost::executed_cost(spec.model(), spec.batch).step_macs)};
}

constexpr std::int64_t kRounds = 8, kTokensPerRound = 8;

// Returns the median seconds of a token of each model. The models take turns of kTokensPerRound tokens.
std::vector<double> token_seconds(const std::vector<WorkloadSpec>& specs, const BenchOptions& options) {
  const auto processes = started(specs, options);
  for (const auto& process : processes) {
    process->ask("run 3");  // to warm up
  }
  std::vector<std::vector<double>> seconds(specs.size());
  for (std::int64_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      for (const Json& one : processes[i]->ask(fmt::format("run {}", kTokensPerRound))) {
        seconds[i].push_back(one.get<double>());
      }
    }
  }
  return transformed(seconds, [](const std::vector<double>& each) { return median(each); });
}

}  // namespace

std::vector<Row> switchhead(const BenchOptions& options) {
  std::vector<Row> rows = compare_models(
      {training_step("step 47M B8: dense H=10", {.recipe = "switchhead/wt103_47m_dense_h10", .batch = 8}),
       training_step("step 47M B8: SwitchHead H=2", {.recipe = "switchhead/wt103_47m", .batch = 8}),
       training_step("step 47M B8: MoA H=4", {.recipe = "switchhead/wt103_47m_moa_h4", .batch = 8})},
      options);
  // Two models of 262M parameters fit in 16 GiB of memory.
  const TimedModel dense =
      training_step("step 262M B2: dense H=16", {.recipe = "switchhead/wt103_262m_dense_h16", .batch = 2});
  const std::vector<Row> pair = compare_models(
      {dense, training_step("step 262M B2: SwitchHead", {.recipe = "switchhead/wt103_262m", .batch = 2})}, options);
  rows.insert(rows.end(), pair.begin(), pair.end());
  rows.push_back(compare_models({dense, training_step("step 262M B2: MoA H=8",
                                                      {.recipe = "switchhead/wt103_262m_moa_h8", .batch = 2})},
                                options)
                     .back());
  return rows;
}

// Four layers of the 405M models; table 6 also has Transformer++ with the windows of DCFormer++.
std::vector<Row> dcformer(const BenchOptions& options) {
  const std::vector<std::string> few = four_layers();
  std::vector<std::string> windows = few;
  windows.insert(windows.end(), {"model.attention.window=256", "model.attention.window_pattern=1:1"});
  std::vector<std::pair<const char*, WorkloadSpec>> models = {
      {"Transformer++", {.recipe = "dcmha/405m_transformer_pp", .set = few}},
      {"Transformer++ with windows", {.recipe = "dcmha/405m_transformer_pp", .set = windows}},
      {"DCFormer++", {.recipe = "dcmha/405m_dcformer_pp", .set = few}}};
  std::vector<TimedModel> steps;
  std::vector<WorkloadSpec> decoders;
  for (auto& [name, spec] : models) {
    steps.push_back(training_step(fmt::format("step 4 layers T2048 B1: {}", name), spec));
    spec.work = "decode";
    decoders.push_back(spec);
  }
  std::vector<Row> rows = compare_models(steps, options);
  const std::vector<double> tokens = token_seconds(decoders, options);
  for (std::size_t i = 0; i < models.size(); ++i) {
    rows.push_back({.name = fmt::format("token 4 layers: {}", models[i].first),
                    .seconds = tokens[i],
                    .ratio_to_reference = tokens[0] / tokens[i]});
  }
  return rows;
}

namespace {

// Returns the configs on the command line, or `otherwise` if there are none.
std::vector<WorkloadSpec> specs_of(const BenchOptions& options, const std::vector<WorkloadSpec>& otherwise) {
  std::vector<WorkloadSpec> specs = otherwise;
  if (!options.configs.empty()) {
    specs.clear();
    for (const std::string& config : options.configs) {
      specs.push_back({.recipe = config, .set = {}});
    }
  }
  for (WorkloadSpec& spec : specs) {
    spec.set.insert(spec.set.end(), options.set.begin(), options.set.end());
    spec.batch = options.batch;
  }
  return specs;
}

}  // namespace

std::vector<Row> evaluate(const BenchOptions& options) {
  // Transformer-MGK, table 6.
  std::vector<WorkloadSpec> specs = specs_of(options, {{.recipe = "mgk/lra_retrieval_softmax_h8", .set = {}},
                                                       {.recipe = "mgk/lra_retrieval_mgk_h4", .set = {}},
                                                       {.recipe = "mgk/lra_retrieval_smgk_h4", .set = {}}});
  for (WorkloadSpec& spec : specs) {
    spec.work = "forward";
  }
  std::vector<TimedModel> models;
  for (const WorkloadSpec& spec : specs) {
    const cost::ExecutedCost cost = cost::executed_cost(spec.model(), options.batch);
    const double macs =
        static_cast<double>(options.batch) * static_cast<double>(cost.attention_macs + cost.mlp_macs + cost.head_macs);
    models.push_back({fmt::format("read B{}: {}", options.batch, spec.recipe), spec, macs});
  }
  return compare_models(models, options);
}

void check_generation(const BenchOptions& options) {
  for (const std::string& config : options.configs) {
    const config::ModelOptions model = config::load_config(config, options.set).model;
    if (model.kind != config::ModelKind::language_model) {
      user_error("bench: generation: {}: must be a language model", config);
    }
    if (options.prompt + options.tokens > model.context_length) {
      user_error("bench: generation: {}: the prompt ({}) and the generated tokens ({}) exceed context_length, {}",
                 config, options.prompt, options.tokens, model.context_length);
    }
  }
}

std::vector<Row> generation(const BenchOptions& options) {
  // DCMHA, table 6, with four layers.
  std::vector<WorkloadSpec> specs = specs_of(options, {{.recipe = "dcmha/405m_transformer_pp", .set = four_layers()},
                                                       {.recipe = "dcmha/405m_dcformer_pp", .set = four_layers()}});
  for (WorkloadSpec& spec : specs) {
    spec.work = "decode";
    spec.prompt = options.prompt;
  }
  const auto processes = started(specs, options);
  std::vector<std::vector<double>> prompts(specs.size()), tokens(specs.size());
  for (std::int64_t round = -1; round < options.repeats; ++round) {  // the first round is warm-up
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const double prompt = processes[i]->ask("prompt").get<double>();
      const auto each = processes[i]->ask(fmt::format("run {}", options.tokens)).get<std::vector<double>>();
      if (round >= 0) {
        prompts[i].push_back(prompt);
        tokens[i].push_back(std::accumulate(each.begin(), each.end(), 0.0));
      }
    }
  }
  std::vector<Row> rows;
  for (const auto& [times, what] :
       {std::pair(&prompts, fmt::format("prompt of {}", options.prompt)),
        std::pair(&tokens, fmt::format("{} tokens after {}", options.tokens, options.prompt))}) {
    const double first = median(times->front());
    const auto count = static_cast<double>((times == &prompts ? options.prompt : options.tokens) * options.batch);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const double seconds = median((*times)[i]);
      rows.push_back(
          {.name = fmt::format("{} B{}: {} ({:.4g} per second)", what, options.batch, specs[i].recipe, count / seconds),
           .seconds = seconds,
           .ratio_to_reference = first / seconds,
           .fraction_of_limit = {},
           .peak_memory_bytes = {}});
      if (times == &tokens) {
        report_memory(rows.back(), *processes[i], options);
      }
    }
  }
  return rows;
}

}  // namespace headroom::bench
