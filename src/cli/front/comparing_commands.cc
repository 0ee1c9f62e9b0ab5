// compare, sweep, advise, report, demo: several trainings, and the page about them.
#include <memory>

#include "foundation/core/text/format.h"
#include "program.h"

namespace headroom::cli {

namespace {

void add_seeds(CLI::App& command, std::int64_t& seeds) {
  command
      .add_option("--seeds", seeds,
                  "train each model N times, with train.seed, train.seed + 1, ...: means, deviations and the paired "
                  "difference with its 95% interval")
      ->capture_default_str()
      ->check(whole_number(1, 10000))
      ->type_name("N");
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
          user_error(
              "compare: CONFIG ({}) and --family cannot both be given: each model is one of a family, or none is",
              options->configs.front());
        }
        return program.engine(*options);
      });
  command.add_option("CONFIG", options->configs, "TOML files or recipes; the first is what the others are compared to")
      ->type_name("");
  command
      .add_option(
          "--family", options->families,
          "instead of CONFIG, repeatable: models of several sizes; says how much compute the other families save "
          "compared with the first")
      ->allow_extra_args(false)
      ->type_name("NAME=CONFIG,CONFIG,...");
  add_out(command, options->out, "folder of the runs and the report", "DIR");
  add_set(command, options->set);
  add_seeds(command, options->seeds);
  command
      .add_option(
          "--tune", options->tune,
          "each model first takes its own best of these values, found with the first seed; repeatable: its best "
          "combination")
      ->allow_extra_args(false)
      ->type_name("KEY=V1,V2,...");
  command.add_option("--prompt", options->prompts, "beginning of a sample text (repeatable)")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  command.add_option("--sample-tokens", options->sample_tokens, "length of a sample text")
      ->capture_default_str()
      ->check(whole_number(0))
      ->type_name("N");
  program.add_threads(command);
}

void add_sweep(Program& program) {
  auto options = std::make_shared<Sweep>();
  CLI::App& command = program.add(
      program.root(), "sweep", "Train a config with every combination of values; best first, in a table and a page.",
      "headroom sweep demo/dense_h8 --vary train.learning_rate=3e-4,1e-3,3e-3 --out runs/rates",
      [&program, options] { return program.engine(*options); });
  command.add_option("CONFIG", options->config, "TOML file or recipe")->required()->type_name("");
  command.add_option("--vary", options->vary, "a key and its values; repeatable: every combination")
      ->required()
      ->allow_extra_args(false)
      ->type_name("KEY=V1,V2,...");
  add_out(command, options->out, "folder of the runs and the report", "DIR");
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
      "Find what to train in a given time: try out within a tenth of it, end with a config, a table and a page.",
      "headroom advise mine.toml --budget 2h --out runs/advice\n"
      "  headroom advise mine.toml --budget 1d --variants dense,switchhead,dcmha --heads --out runs/heads",
      [&program, options] {
        options->budget = parse_duration(options->budget_text, "advise: --budget");
        return program.engine<Advise>(*options);
      });
  command.add_option("CONFIG", options->config, "TOML file or recipe")->required()->type_name("");
  command.add_option("--budget", options->budget_text, "for trials and the run that is advised: 90s, 30m, 2h, 1d")
      ->required()
      ->type_name("TIME");
  add_out(command, options->out, "folder of the trials, the config and the report", "DIR");
  command
      .add_option("--variants", options->variants,
                  "also try other attention of the same size: recipes of the zoo (dense, switchhead, dcmha, moa, ...), "
                  "other recipes, TOML files")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(not_empty())
      ->type_name("NAME,...");
  command.add_flag("--heads", options->heads, "also try other numbers of heads and experts of the same size");
  command.add_option("--keep", options->keep, "what stays as CONFIG has it")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of({"size", "batch", "vocabulary"}))
      ->type_name("size,batch,vocabulary");
  add_set(command, options->set);
  program.add_threads(command);
}

void add_report(Program& program) {
  auto options = std::make_shared<Report>();
  CLI::App& command =
      program.add(program.root(), "report", "Write the page of a comparison, a sweep or a run again; train nothing.",
                  "headroom report runs/pair\n  headroom report --watch runs/first",
                  [&program, options] { return program.engine(*options); });
  command.add_option("DIR", options->folder, "what --out named")->required()->check(not_empty())->type_name("");
  command.add_flag("--watch", options->watch, "write it again and again while training goes on in DIR");
}

void add_demo(Program& program) {
  auto options = std::make_shared<Demo>();
  CLI::App& command = program.add(
      program.root(), "demo", "SwitchHead compared with dense Transformers of its size, on the built-in corpus.",
      "headroom demo --out runs/demo", [&program, options] { return program.engine(*options); });
  command.add_option("--out", options->out, "folder of the runs and the report")
      ->capture_default_str()
      ->check(not_empty())
      ->type_name("DIR");
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
