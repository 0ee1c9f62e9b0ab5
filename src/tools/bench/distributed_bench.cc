// Training steps shared by processes of one thread each, against one process with all threads, and against PyTorch's
// DistributedDataParallel.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "timing.h"
#include "training/cost/cost.h"
#include "worker.h"

namespace headroom::bench {
namespace {

struct Setting {
  std::string name;
  int processes = 1;
  std::int64_t threads = 1;
  WorkerSpec spec;
  std::size_t reference = 0;  // the row whose rate this one is compared with
};

// The model of `bench step`, deeper, in a form that both can build.
std::vector<std::string> plain_model() {
  return {"model.vocabulary_size=8000",
          "tokenizer.vocabulary_size=8000",
          "model.n_layers=12",
          "model.d_model=512",
          "model.context_length=256",
          "model.memory_length=0",
          "model.dropout=0",
          "model.tied_embeddings=true",
          "model.head_bias=false",
          "model.attention.n_heads=8",
          "model.attention.d_head=64",
          "model.attention.position=\"learned\"",
          "model.attention.position_bias=false",
          "model.mlp.d_hidden=2048",
          "model.mlp.activation=\"gelu\""};
}

// PyTorch's own step of it, shared by processes of DistributedDataParallel, each with `batch` sequences.
class Ddp {
 public:
  Ddp(int processes, std::int64_t batch, const std::string& precision) {
    const Json size = {{"vocabulary_size", 8000}, {"n_layers", 12},        {"n_heads", 8},
                       {"d_model", 512},          {"context_length", 256}, {"batch", batch}};
    std::vector<std::string> command = python_yardstick("distributed", "pytorch_step.py");
    command.back() = "1";  // threads
    command.insert(command.end(), {"--precision", precision, "--size", to_json_line(size)});
    for (int rank = 0; rank < processes; ++rank) {
      processes_.push_back(std::make_unique<YardstickProcess>(
          command, processes > 1 ? rendezvous_.variables(rank, processes) : YardstickProcess::Environment()));
    }
  }

  ~Ddp() {
    for (const auto& process : processes_) {
      process->send("quit");
    }
  }
  Ddp(const Ddp&) = delete;
  Ddp& operator=(const Ddp&) = delete;

  void run() {
    for (const auto& process : processes_) {
      process->send("run 1");
    }
    for (const auto& process : processes_) {
      process->answer();
    }
  }

  std::int64_t memory() {
    std::int64_t most = 0;
    for (const auto& process : processes_) {
      process->send("memory");
    }
    for (const auto& process : processes_) {
      most = std::max(most, process->answer().get<std::int64_t>());
    }
    return most;
  }

 private:
  parallel::Rendezvous rendezvous_;
  std::vector<std::unique_ptr<YardstickProcess>> processes_;
};

std::vector<Setting> settings(const BenchOptions& options) {
  const std::int64_t threads = at::get_num_threads();
  const auto spec = [&](const std::string& recipe, std::int64_t batch, std::int64_t accumulate) {
    return WorkerSpec{.recipe = recipe, .batch = batch, .precision = options.precision, .accumulate = accumulate};
  };
  const std::string dense = "switchhead/wt103_47m_dense_h10", switchhead = "switchhead/wt103_47m";
  WorkerSpec plain = spec("demo/dense_h8", 8, 2), half = spec("demo/dense_h8", 4, 1);
  plain.set = half.set = plain_model();
  return {
      {fmt::format("dense 47M B8 K2: 1 process, {} threads", threads), 1, threads, spec(dense, 8, 2), 0},
      {"dense 47M B8 K2: 2 processes", 2, 1, spec(dense, 8, 2), 0},
      {fmt::format("SwitchHead 47M B8 K2: 1 process, {} threads", threads), 1, threads, spec(switchhead, 8, 2), 2},
      {"SwitchHead 47M B8 K2: 2 processes", 2, 1, spec(switchhead, 8, 2), 2},
      {"dense 47M B4 K4: 1 process, 1 thread", 1, 1, spec(dense, 4, 4), 4},
      {"dense 47M B8 K8: 2 processes", 2, 1, spec(dense, 8, 8), 4},
      {"plain 42M B4 K1: 1 process, 1 thread", 1, 1, half, 6},
      {"plain 42M B8 K2: 2 processes", 2, 1, plain, 6},
  };
}

}  // namespace

std::vector<Row> distributed(const BenchOptions& options) {
  const std::vector<Setting> all = settings(options);
  std::vector<std::unique_ptr<Workers>> workers;
  std::vector<Work> work;
  for (const Setting& setting : all) {
    Workers* one = workers.emplace_back(new Workers(setting.spec, setting.processes, setting.threads)).get();
    work.emplace_back([one] { one->run(); });
  }
  Ddp alone(1, 4, options.precision), shared(2, 4, options.precision);
  work.emplace_back([&] { alone.run(); });
  work.emplace_back([&] { shared.run(); });
  const std::vector<double> times = medians_in_turn(work, options);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double flops =
        2.0 * static_cast<double>(cost::executed_cost(all[i].spec.model(), all[i].spec.batch).step_macs);
    const std::vector<std::int64_t> memory = workers[i]->memory();
    rows.push_back({.name = all[i].name,
                    .seconds = times[i],
                    .gflops = flops / times[i] * 1e-9,
                    .ratio_to_reference = times[all[i].reference] / times[i],
                    .peak_memory_bytes = *std::max_element(memory.begin(), memory.end())});
  }
  const double flops = rows.back().gflops * rows.back().seconds;
  rows.push_back({.name = "plain 42M B4: PyTorch, 1 process, 1 thread",
                  .seconds = times[all.size()],
                  .gflops = flops / 2.0 / times[all.size()],
                  .ratio_to_reference = 1.0,
                  .peak_memory_bytes = alone.memory()});
  rows.push_back({.name = "plain 42M B8: PyTorch DDP, 2 processes",
                  .seconds = times[all.size() + 1],
                  .gflops = flops / times[all.size() + 1],
                  .ratio_to_reference = times[all.size()] / times[all.size() + 1],
                  .peak_memory_bytes = shared.memory()});
  return rows;
}

}  // namespace headroom::bench
