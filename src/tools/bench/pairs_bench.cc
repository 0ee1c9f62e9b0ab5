// Models against the dense ones that they are to replace, each in a process of its own, turn by turn.
#include <fmt/format.h>

#include <cmath>

#include "timing.h"
#include "training/cost/cost.h"
#include "training/cost/memory.h"
#include "worker.h"

namespace headroom::bench {
namespace {

struct Model {
  std::string name;
  WorkerSpec spec;
};

// The first model is the one that the others are compared with.
std::vector<Row> compare_models(const std::vector<Model>& models, const BenchOptions& options) {
  const double limit = machine_limits(options).product_gflops;
  std::vector<std::unique_ptr<YardstickProcess>> processes;
  std::vector<Work> work;
  for (const Model& model : models) {
    WorkerSpec spec = model.spec;
    spec.precision = options.precision;
    spec.device = options.device;
    YardstickProcess* process = processes.emplace_back(new YardstickProcess(start_worker(spec))).get();
    work.emplace_back([process] { process->ask("run 1"); });
  }
  const std::vector<double> times = medians_in_turn(work, options);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const double flops =
        2.0 * static_cast<double>(cost::executed_cost(models[i].spec.model(), models[i].spec.batch).step_macs);
    rows.push_back({.name = models[i].name,
                    .seconds = times[i],
                    .gflops = flops / times[i] * 1e-9,
                    .ratio_to_reference = times[0] / times[i],
                    .fraction_of_limit = flops / times[i] * 1e-9 / limit,
                    .peak_memory_bytes = {}});
    if (at::Device(options.device).is_cpu()) {
      rows.back().peak_memory_bytes = processes[i]->ask("memory").get<std::int64_t>();
    }
  }
  return rows;
}

// Numbers that one more token must read: without a past a product reads each of its weights once, and does one
// multiply-accumulate with it; of `keys` tokens, all that the cache keeps.
double numbers_read(config::ModelOptions o, std::int64_t keys) {
  const auto kept = static_cast<double>(cost::decoding_cache_elements(o));
  const auto room = static_cast<double>(o.memory_length + o.context_length);
  o.context_length = 1;
  o.memory_length = 0;
  const cost::ExecutedCost cost = cost::executed_cost(o, 1);
  return static_cast<double>(cost.attention_macs + cost.mlp_macs + cost.head_macs) +
         kept * static_cast<double>(keys) / room;
}

// Medians of one model.
struct TokenTimes {
  double seconds = 0.0;
  double bandwidth_gb = 0.0;  // at which its process can read its weights
};

constexpr std::int64_t kRounds = 8, kTokensARound = 8;

// Tokens decoded one by one by each of some models, a few in turn.
std::vector<TokenTimes> token_times(const std::vector<WorkerSpec>& specs, const BenchOptions& options) {
  std::vector<std::unique_ptr<YardstickProcess>> processes;
  for (WorkerSpec spec : specs) {
    spec.precision = options.precision;
    spec.device = options.device;
    processes.emplace_back(new YardstickProcess(start_worker(spec)))->ask("run 3");
  }
  std::vector<std::vector<double>> seconds(specs.size()), rates(specs.size());
  for (std::int64_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      for (const Json& one : processes[i]->ask(fmt::format("run {}", kTokensARound))) {
        seconds[i].push_back(one.get<double>());
      }
      rates[i].push_back(processes[i]->ask("bandwidth").get<double>());
    }
  }
  std::vector<TokenTimes> times;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    times.push_back({median(std::move(seconds[i])), median(std::move(rates[i]))});
  }
  return times;
}

}  // namespace

std::vector<Row> switchhead(const BenchOptions& options) {
  return compare_models({{"step 47M B8: dense H=10", {.recipe = "switchhead/wt103_47m_dense_h10", .batch = 8}},
                         {"step 47M B8: SwitchHead H=2", {.recipe = "switchhead/wt103_47m", .batch = 8}},
                         {"step 47M B8: MoA H=4", {.recipe = "switchhead/wt103_47m_moa_h4", .batch = 8}}},
                        options);
}

// Two at a time, which is what the memory of a machine with 16 GiB holds.
std::vector<Row> switchhead_262m(const BenchOptions& options) {
  const Model dense{"step 262M B2: dense H=16", {.recipe = "switchhead/wt103_262m_dense_h16", .batch = 2}};
  std::vector<Row> rows =
      compare_models({dense, {"step 262M B2: SwitchHead", {.recipe = "switchhead/wt103_262m", .batch = 2}}}, options);
  rows.push_back(
      compare_models({dense, {"step 262M B2: MoA H=8", {.recipe = "switchhead/wt103_262m_moa_h8", .batch = 2}}},
                     options)
          .back());
  return rows;
}

// The layers of the 405M models.
std::vector<Row> dcformer(const BenchOptions& options) {
  const std::vector<std::string> few = four_layers();
  std::vector<Row> rows =
      compare_models({{"step 4 layers T2048 B1: Transformer++", {.recipe = "dcmha/405m_transformer_pp", .set = few}},
                      {"step 4 layers T2048 B1: DCFormer++", {.recipe = "dcmha/405m_dcformer_pp", .set = few}}},
                     options);
  const std::vector<TokenTimes> tokens =
      token_times({{.recipe = "dcmha/405m_transformer_pp", .set = few, .work = "decode"},
                   {.recipe = "dcmha/405m_dcformer_pp", .set = few, .work = "decode"}},
                  options);
  rows.push_back({.name = "token 4 layers: Transformer++", .seconds = tokens[0].seconds, .ratio_to_reference = 1.0});
  rows.push_back({.name = "token 4 layers: DCFormer++",
                  .seconds = tokens[1].seconds,
                  .ratio_to_reference = tokens[0].seconds / tokens[1].seconds});
  return rows;
}

std::vector<Row> decoding(const BenchOptions& options) {
  constexpr std::int64_t kKeys = 64 + kRounds * kTokensARound / 2;  // the prompt, and half of what is timed
  const std::vector<std::pair<const char*, WorkerSpec>> models = {
      {"dense 47M H=10", {.recipe = "switchhead/wt103_47m_dense_h10", .work = "decode"}},
      {"SwitchHead 47M H=2", {.recipe = "switchhead/wt103_47m", .work = "decode"}},
      {"dense 262M H=16", {.recipe = "switchhead/wt103_262m_dense_h16", .work = "decode"}},
      {"SwitchHead 262M", {.recipe = "switchhead/wt103_262m", .work = "decode"}}};
  std::vector<WorkerSpec> specs;
  for (const auto& model : models) {
    specs.push_back(model.second);
  }
  const std::vector<TokenTimes> times = token_times(specs, options);
  const double width = options.precision == "bf16" ? 2.0 : 4.0;  // bytes a number
  std::vector<Row> rows;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const double numbers = numbers_read(specs[i].model(), kKeys), seconds = times[i].seconds;
    const std::size_t dense = i / 2 * 2;
    rows.push_back({.name = fmt::format("token B1: {} ({:.0f} MB read)", models[i].first, numbers * width * 1e-6),
                    .seconds = seconds,
                    .gflops = 2.0 * numbers / seconds * 1e-9,
                    .ratio_to_reference = times[dense].seconds / seconds,
                    .fraction_of_limit = numbers * width * 1e-9 / times[i].bandwidth_gb / seconds});
  }
  return rows;
}

}  // namespace headroom::bench
