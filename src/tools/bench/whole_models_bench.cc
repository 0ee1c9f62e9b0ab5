// Whole models of any configs at test time, each in a process of its own, turn by turn: reading a batch, and writing
// after a prompt.
#include <fmt/format.h>

#include <numeric>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "timing.h"
#include "training/cost/cost.h"
#include "worker.h"

namespace headroom::bench {
namespace {

// The configs of the command line, or else these.
std::vector<WorkerSpec> specs_of(const BenchOptions& options, const std::vector<WorkerSpec>& otherwise) {
  std::vector<WorkerSpec> specs = otherwise;
  if (!options.configs.empty()) {
    specs.clear();
    for (const std::string& config : options.configs) {
      specs.push_back({.recipe = config, .set = {}});
    }
  }
  for (WorkerSpec& spec : specs) {
    spec.precision = options.precision;
    spec.device = options.device;
    spec.batch = options.batch;
  }
  return specs;
}

std::vector<std::unique_ptr<YardstickProcess>> started(const std::vector<WorkerSpec>& specs) {
  std::vector<std::unique_ptr<YardstickProcess>> processes;
  for (const WorkerSpec& spec : specs) {
    processes.emplace_back(new YardstickProcess(start_worker(spec)));
  }
  return processes;
}

void report_memory(Row& row, YardstickProcess& process, const BenchOptions& options) {
  if (at::Device(options.device).is_cpu()) {
    row.peak_memory_bytes = process.ask("memory").get<std::int64_t>();
  }
}

}  // namespace

std::vector<Row> evaluate(const BenchOptions& options) {
  // Transformer-MGK, table 6.
  std::vector<WorkerSpec> specs = specs_of(options, {{.recipe = "mgk/lra_retrieval_softmax_h8", .set = {}},
                                                     {.recipe = "mgk/lra_retrieval_mgk_h4", .set = {}},
                                                     {.recipe = "mgk/lra_retrieval_smgk_h4", .set = {}}});
  for (WorkerSpec& spec : specs) {
    spec.work = "forward";
  }
  const double limit = machine_limits(options).product_gflops;
  const auto processes = started(specs);
  std::vector<Work> work;
  for (const auto& process : processes) {
    work.emplace_back([&process] { process->ask("run 1"); });
  }
  const std::vector<double> times = medians_in_turn(work, options);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const cost::ExecutedCost cost = cost::executed_cost(specs[i].model(), options.batch);
    const double flops = 2.0 * static_cast<double>(options.batch) *
                         static_cast<double>(cost.attention_macs + cost.mlp_macs + cost.head_macs);
    rows.push_back({.name = fmt::format("read B{}: {}", options.batch, specs[i].recipe),
                    .seconds = times[i],
                    .gflops = flops / times[i] * 1e-9,
                    .ratio_to_reference = times[0] / times[i],
                    .fraction_of_limit = flops / times[i] * 1e-9 / limit,
                    .peak_memory_bytes = {}});
    report_memory(rows.back(), *processes[i], options);
  }
  return rows;
}

void check_generation(const BenchOptions& options) {
  for (const std::string& config : options.configs) {
    const config::ModelOptions model = config::load_config(config).model;
    if (model.kind != config::ModelKind::language_model) {
      user_error("bench: generation: {}: must be a language model", config);
    }
    if (options.prompt + options.tokens > model.context_length) {
      user_error("bench: generation: {}: a prompt of {} and {} tokens are more than its context_length, {}", config,
                 options.prompt, options.tokens, model.context_length);
    }
  }
}

std::vector<Row> generation(const BenchOptions& options) {
  // DCMHA, table 6, with few of the layers.
  std::vector<WorkerSpec> specs = specs_of(options, {{.recipe = "dcmha/405m_transformer_pp", .set = four_layers()},
                                                     {.recipe = "dcmha/405m_dcformer_pp", .set = four_layers()}});
  for (WorkerSpec& spec : specs) {
    spec.work = "decode";
    spec.prompt = options.prompt;
  }
  const auto processes = started(specs);
  std::vector<std::vector<double>> prompts(specs.size()), tokens(specs.size());
  for (std::int64_t round = -1; round < options.repeats; ++round) {  // one round to warm up
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
          {.name = fmt::format("{} B{}: {} ({:.4g} a second)", what, options.batch, specs[i].recipe, count / seconds),
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
