// Models against the dense ones that they are to replace, each in a process of its own, turn by turn.
#include <fmt/format.h>

#include <cmath>

#include "headroom/cost/cache.h"
#include "headroom/cost/cost.h"
#include "timing.h"
#include "worker.h"

namespace headroom::bench {
namespace {

struct Model {
  std::string name;
  WorkerSpec spec;
};

// The first model is the one that the others are compared with.
std::vector<Row> compare_models(const std::vector<Model>& models, const BenchOptions& options) {
  const double limit = machine_limits(options.precision).product_gflops;
  std::vector<std::unique_ptr<YardstickProcess>> processes;
  std::vector<Work> work;
  for (const Model& model : models) {
    WorkerSpec spec = model.spec;
    spec.precision = options.precision;
    YardstickProcess* process = processes.emplace_back(new YardstickProcess(start_worker(spec))).get();
    work.emplace_back([process] { process->ask("run 1"); });
  }
  const std::vector<double> times = medians_in_turn(work, options.repeats);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const double flops =
        2.0 * static_cast<double>(cost::executed_cost(models[i].spec.model(), models[i].spec.batch).step_macs);
    rows.push_back({.name = models[i].name,
                    .seconds = times[i],
                    .gflops = flops / times[i] * 1e-9,
                    .ratio_to_reference = times[0] / times[i],
                    .fraction_of_limit = flops / times[i] * 1e-9 / limit,
                    .peak_memory_bytes = processes[i]->ask("memory").get<std::int64_t>()});
  }
  return rows;
}

// Numbers that one more token must read: without a past a product reads each of its weights once, and does one
// multiply-accumulate with it; of `keys` tokens, all that the cache keeps.
double numbers_read(config::ModelOptions o, std::int64_t keys) {
  const auto kept = static_cast<double>(cost::decoding_cache_numbers(o));
  const auto room = static_cast<double>(o.memory_length + o.context_length);
  o.context_length = 1;
  o.memory_length = 0;
  const cost::ExecutedCost cost = cost::executed_cost(o, 1);
  return static_cast<double>(cost.attention_macs + cost.mlp_macs + cost.head_macs) +
         kept * static_cast<double>(keys) / room;
}

// Median seconds of each of `tokens` tokens decoded one by one, in a process of their own.
double token_seconds(const WorkerSpec& spec, std::int64_t tokens) {
  YardstickProcess process(start_worker(spec));
  process.ask("run 3");
  return median(process.ask(fmt::format("run {}", tokens)).get<std::vector<double>>());
}

}  // namespace

std::vector<Row> switchhead(const BenchOptions& options) {
  return compare_models({{"step 47M B8: dense H=10", {.recipe = "switchhead/wt103_47m_dense_h10", .batch = 8}},
                         {"step 47M B8: SwitchHead H=2", {.recipe = "switchhead/wt103_47m", .batch = 8}}},
                        options);
}

std::vector<Row> switchhead_262m(const BenchOptions& options) {
  return compare_models({{"step 262M B2: dense H=16", {.recipe = "switchhead/wt103_262m_dense_h16", .batch = 2}},
                         {"step 262M B2: SwitchHead", {.recipe = "switchhead/wt103_262m", .batch = 2}}},
                        options);
}

// The layers of the 405M models, four of them, with a vocabulary that does not hide them.
std::vector<Row> dcformer(const BenchOptions& options) {
  const std::vector<std::string> few = {"model.n_layers=4", "model.vocabulary_size=8000",
                                        "tokenizer.vocabulary_size=8000"};
  std::vector<Row> rows =
      compare_models({{"step 4 layers T2048 B1: Transformer++", {.recipe = "dcmha/405m_transformer_pp", .set = few}},
                      {"step 4 layers T2048 B1: DCFormer++", {.recipe = "dcmha/405m_dcformer_pp", .set = few}}},
                     options);
  for (const auto& [name, recipe] :
       {std::pair{"Transformer++", "dcmha/405m_transformer_pp"}, {"DCFormer++", "dcmha/405m_dcformer_pp"}}) {
    rows.push_back({.name = fmt::format("token 4 layers: {}", name),
                    .seconds = token_seconds({.recipe = recipe, .set = few, .work = "decode"}, 128)});
  }
  rows[3].ratio_to_reference = rows[2].seconds / rows[3].seconds;
  rows[2].ratio_to_reference = 1.0;
  return rows;
}

std::vector<Row> decoding(const BenchOptions& /*options*/) {
  constexpr std::int64_t kTokens = 64, kKeys = 64 + kTokens / 2;  // the prompt, and half of what is timed
  const double bandwidth = machine_limits("fp32").bandwidth_gb * 1e9;
  std::vector<Row> rows;
  const auto add = [&](const char* name, const char* recipe, std::optional<std::size_t> reference) {
    const WorkerSpec spec{.recipe = recipe, .work = "decode"};
    const double seconds = token_seconds(spec, kTokens);
    const double numbers = numbers_read(spec.model(), kKeys);
    rows.push_back({.name = fmt::format("token B1: {} ({:.0f} MB read)", name, numbers * 4e-6),
                    .seconds = seconds,
                    .gflops = 2.0 * numbers / seconds * 1e-9,
                    .ratio_to_reference = reference ? rows[*reference].seconds / seconds : 1.0,
                    .fraction_of_limit = numbers * 4.0 / bandwidth / seconds});
  };
  add("dense 47M H=10", "switchhead/wt103_47m_dense_h10", {});
  add("SwitchHead 47M H=2", "switchhead/wt103_47m", 0);
  add("dense 262M H=16", "switchhead/wt103_262m_dense_h16", {});
  add("SwitchHead 262M", "switchhead/wt103_262m", 2);
  return rows;
}

}  // namespace headroom::bench
