// golden, bench, doctor: is it right, is it fast, is all in place?
#include <memory>

#include "program.h"

namespace headroom::cli {

namespace {

void add_golden(Program& program) {
  struct Options : Golden {
    std::string name = "automatic";
  };
  auto options = std::make_shared<Options>();
  CLI::App& command =
      program.add(program.root(), "golden", "Run numerical reference cases: outputs, losses and every gradient.",
                  "headroom golden tests/tools/golden/cases/dense --dtype float64", [&program, options] {
                    for (const auto& [implementation, name] : config::values_of<config::Implementation>()) {
                      if (name == options->name) {
                        options->implementation = implementation;
                      }
                    }
                    return program.engine<Golden>(*options);
                  });
  command
      .add_option("PATH", options->paths,
                  "folders, .json or .safetensors files; those of the source tree are in tests/tools/golden/cases")
      ->type_name("");
  command.add_option("--impl", options->name, "how operators are computed")
      ->capture_default_str()
      ->check(one_of({"reference", "fused", "automatic"}))
      ->type_name("reference|fused|automatic");
  command.add_option("--dtype", options->dtype, "number format")
      ->capture_default_str()
      ->check(one_of({"float32", "float64"}))
      ->type_name("float32|float64");
  add_device(command, options->device);
  program.add_threads(command);
}

void add_bench(Program& program) {
  auto options = std::make_shared<Bench>();
  CLI::App& command = program.add(
      program.root(), "bench", "Time operators and training steps against yardsticks in the same run.",
      "headroom bench attention step\n  headroom bench generation zoo/dense zoo/dcmha --prompt 64 --tokens 64",
      [&program, options] { return program.engine(*options); });
  command
      .add_option(
          "NAME", options->names,
          "benchmarks (default: all); after generation and evaluate: TOML files or recipes, of which the first is "
          "what the others are compared with")
      ->type_name("");
  command.add_option("--plots", options->plots, "draw what has a shape into this folder (scaling)")->type_name("DIR");
  command.add_option("--config", options->configs, "profile, generation, evaluate: of this TOML file or recipe")
      ->type_name("CONFIG");
  command.add_option("--serve", options->serve)->group("");
  command.add_flag("--list", options->list, "say what there is");
  command.add_option("--repeats", options->repeats, "timed runs; the median counts")
      ->capture_default_str()
      ->check(whole_number(1, 1'000'000))
      ->type_name("N");
  const auto count = [&command](const char* name, std::int64_t& value, const char* about) {
    command.add_option(name, value, about)->capture_default_str()->check(whole_number(1, 1'000'000))->type_name("N");
  };
  count("--batch-size", options->batch, "generation, evaluate: sequences or examples side by side");
  count("--prompt", options->prompt, "generation: tokens of the prompt");
  count("--tokens", options->tokens, "generation: tokens written after it");
  command.add_option("--precision", options->precision, "where a benchmark has both")
      ->capture_default_str()
      ->check(one_of({"fp32", "bf16"}))
      ->type_name("fp32|bf16");
  add_device(command, options->device);
  program.add_threads(command);
}

void add_doctor(Program& program) {
  auto options = std::make_shared<Doctor>();
  CLI::App& command = program.add(
      program.root(), "doctor", "Versions, CPU features, devices, threads, and which operators of a config are fused.",
      "headroom doctor dcmha/405m_dcformer_pp", [&program, options] { return program.engine(*options); });
  command.add_option("CONFIG", options->config, "whose operators to look at: TOML file or recipe")
      ->capture_default_str()
      ->type_name("");
  add_set(command, options->set);
}

}  // namespace

void add_checking_commands(Program& program) {
  add_golden(program);
  add_bench(program);
  add_doctor(program);
}

}  // namespace headroom::cli
