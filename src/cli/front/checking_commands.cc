// The commands bench and doctor, which check speed and the installation.
#include <fmt/ranges.h>

#include "program.h"
#include "tools/bench/bench.h"

namespace headroom::cli {

namespace {

void add_bench(Program& program) {
  const auto [command, options] = program.add_engine<Bench>(
      program.root(), "bench", "Time operators and training steps, and baselines for comparison in the same run.",
      "headroom bench attention step\n  headroom bench generation zoo/dense zoo/dcmha --prompt 64 --tokens 64");
  bench::BenchOptions& timed = options->options;
  command
      .add_option("NAME", options->names,
                  fmt::format("benchmarks (default: all): {}; after generation and evaluate: TOML files or recipes, "
                              "the first is the baseline",
                              fmt::join(bench::kBenchNames, ", ")))
      ->type_name("");
  command.add_option("--config", timed.configs, "profile, generation, evaluate: TOML file or recipe")
      ->allow_extra_args(false)  // NAME may follow
      ->type_name("CONFIG");
  add_set(command, timed.set);
  command.add_option("--serve", options->serve)->group("");
  add_value(command, "--repeats", timed.repeats, "N", whole_number(1, 1'000'000),
            "number of timed runs, of which the median is reported");
  const auto count = [&command](const char* name, std::int64_t& value, const char* about) {
    add_value(command, name, value, "N", whole_number(1, 1'000'000), about);
  };
  count("--batch-size", timed.batch, "generation, evaluate: sequences or examples per batch");
  count("--prompt", timed.prompt, "generation: length of the prompt");
  count("--tokens", timed.tokens, "generation: number of tokens to generate");
  add_choice(command, "--precision", timed.precision, {"fp32", "bf16"},
             "number format, for benchmarks that support both");
  add_device(command, timed.device);
  program.add_threads(command);
}

void add_doctor(Program& program) {
  const auto [command, options] = program.add_engine<Doctor>(
      program.root(), "doctor",
      "Show versions, CPU features, devices, threads, and which operators of a config run fused.",
      "headroom doctor dcmha/405m_dcformer_pp");
  command.add_option("CONFIG", options->config, "TOML file or recipe whose operators are shown")
      ->capture_default_str()
      ->type_name("");
  add_set(command, options->set);
}

}  // namespace

void add_checking_commands(Program& program) {
  add_bench(program);
  add_doctor(program);
}

}  // namespace headroom::cli
