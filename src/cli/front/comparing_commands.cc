// The commands compare, sweep, advise, report and demo, which train several models and report on them.
#include <memory>

#include "foundation/core/text/format.h"
#include "program.h"

namespace headroom::cli {

namespace {

void add_seeds(CLI::App& command, std::int64_t& seeds) {
  add_value(command, "--seeds", seeds, "N", whole_number(1, 10000),
            "train each model N times, with seeds train.seed, train.seed + 1, ..., and report means, standard "
            "deviations and the paired difference with its 95% interval");
}

void add_compare(Program& program) {
  auto options = std::make_shared<Compare>();
  CLI::App& command = program.add(
      program.root(), "compare", "Train models under the same budget; print a table and write DIR/report.html.",
      "headroom compare demo/dense_h8 demo/switchhead_h2 --out runs/pair --set train.steps=300\n"
      "  headroom compare a.toml b.toml --out runs/fair --seeds 3 --tune train.learning_rate=5e-4,1e-3,2e-3\n"
      "  headroom compare --family dense=a.toml,b.toml --family mine=c.toml,d.toml --out runs/sizes",
      [&program, options] {
        if (options->configs.empty() && options->families.empty()) {
          user_error("compare: either CONFIG or --family is required (headroom compare --help)");
        }
        if (!options->configs.empty() && !options->families.empty()) {
          user_error("compare: CONFIG ({}) and --family cannot both be given", options->configs.front());
        }
        return program.engine(*options);
      });
  command.add_option("CONFIG", options->configs, "TOML files or recipes; the first is the baseline")->type_name("");
  command
      .add_option("--family", options->families,
                  "instead of CONFIG: models of several sizes; repeatable; reports how much compute each family saves "
                  "compared with the first")
      ->allow_extra_args(false)
      ->type_name("NAME=CONFIG,CONFIG,...");
  add_out(command, options->out, "folder for the runs and the report", "DIR");
  add_set(command, options->set);
  add_seeds(command, options->seeds);
  command
      .add_option(
          "--tune", options->tune,
          "first find the best of these values for each model, with the first seed; repeatable: the best combination")
      ->allow_extra_args(false)
      ->type_name("KEY=V1,V2,...");
  command.add_option("--prompt", options->prompts, "prompt for a sample text; repeatable")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  add_value(command, "--sample-tokens", options->sample_tokens, "N", whole_number(0),
            "length of a sample text in tokens");
  program.add_threads(command);
}

void add_sweep(Program& program) {
  const auto [command, options] = program.add_engine<Sweep>(
      program.root(), "sweep",
      "Train a config with every combination of values; print a table, best first, and write a page.",
      "headroom sweep demo/dense_h8 --vary train.learning_rate=3e-4,1e-3,3e-3 --out runs/rates");
  command.add_option("CONFIG", options->config, "TOML file or recipe")->required()->type_name("");
  command.add_option("--vary", options->vary, "a key and its values; repeatable: every combination is trained")
      ->required()
      ->allow_extra_args(false)
      ->type_name("KEY=V1,V2,...");
  add_out(command, options->out, "folder for the runs and the report", "DIR");
  add_set(command, options->set);
  add_seeds(command, options->seeds);
  program.add_threads(command);
}

void add_advise(Program& program) {
  struct Options : Advise {
    std::string budget_text;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = program.add(
      program.root(), "advise",
      "Find the best config for a training time, with trials that take a tenth of it; writes the config and a page.",
      "headroom advise mine.toml --budget 2h --out runs/advice\n"
      "  headroom advise mine.toml --budget 1d --variants dense,switchhead,dcmha --heads --out runs/heads",
      [&program, options] {
        options->budget = parse_duration(options->budget_text, "advise: --budget");
        return program.engine<Advise>(*options);
      });
  command.add_option("CONFIG", options->config, "TOML file or recipe")->required()->type_name("");
  command.add_option("--budget", options->budget_text, "time for the trials and the advised run: 90s, 30m, 2h, 1d")
      ->required()
      ->type_name("TIME");
  add_out(command, options->out, "folder for the trials, the config and the report", "DIR");
  add_text(command, "--variants", options->variants, "NAME,...",
           "also try other attention at the same size: recipes of the zoo (dense, switchhead, dcmha, moa, ...), other "
           "recipes, TOML files")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_flag("--heads", options->heads, "also try other numbers of heads and experts at the same size");
  command.add_option("--keep", options->keep, "what to keep from CONFIG")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of({"size", "batch", "vocabulary"}))
      ->type_name("size,batch,vocabulary");
  add_set(command, options->set);
  program.add_threads(command);
}

void add_report(Program& program) {
  const auto [command, options] = program.add_engine<Report>(
      program.root(), "report", "Write the page of a comparison, a sweep or a run again, without training.",
      "headroom report runs/pair\n  headroom report --watch runs/first");
  add_text(command, "DIR", options->folder, "", "folder that was given as --out")->required();
  command.add_flag("--watch", options->watch, "update the page while training goes on in DIR");
}

void add_demo(Program& program) {
  const auto [command, options] = program.add_engine<Demo>(
      program.root(), "demo", "Compare SwitchHead with dense Transformers of its size, on the built-in corpus.",
      "headroom demo --out runs/demo");
  add_text(command, "--out", options->out, "DIR", "folder for the runs and the report");
  add_set(command, options->set);
  add_seeds(command, options->seeds);
  program.add_threads(command);
}

}  // namespace

void add_comparing_commands(Program& program) {
  add_compare(program);
  add_sweep(program);
  add_advise(program);
  add_report(program);
  add_demo(program);
}

}  // namespace headroom::cli
