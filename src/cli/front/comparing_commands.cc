// The commands compare, sweep, try, report and demo, which train several models and report on them.
#include <algorithm>
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

// Parses "5%" or "0.05" as a share from 0% to 100%.
double parse_share(const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::optional<double> number = as_number(percent ? text.substr(0, text.size() - 1) : text);
  const double share = number ? *number / (percent ? 100.0 : 1.0) : -1.0;
  if (!(share >= 0.0 && share <= 1.0)) {
    user_error("compare: --tokens: must be shares from 0% to 100%, such as 1%,5%, got {}", text);
  }
  return share;
}

void check_compared(const Compare& options, bool has_shares) {
  const int given =
      (options.configs.empty() ? 0 : 1) + (options.families.empty() ? 0 : 1) + (options.study.source.empty() ? 0 : 1);
  if (given == 0) {
    user_error("compare: either CONFIG or --family is required (headroom compare --help)");
  }
  if (given > 1) {
    user_error("compare: CONFIG ({}), --family and --convert exclude each other",
               options.configs.empty() ? "" : options.configs.front());
  }
  if (options.study.source.empty() != options.study.targets.empty()) {
    user_error("compare: --convert RUN and --to CONFIG,... must be given together");
  }
  if (!options.study.scratch && options.study.source.empty()) {
    user_error("compare: --no-scratch: needs --convert");
  }
  if (has_shares && options.study.source.empty()) {
    user_error("compare: --tokens: needs --convert; set train.steps instead");
  }
}

std::vector<double> parse_shares(const std::vector<std::string>& texts) {
  std::vector<double> shares;
  for (const std::string& text : texts) {
    shares.push_back(parse_share(text));
    if (std::ranges::count(shares, shares.back()) > 1) {
      user_error("compare: --tokens: {} is given twice", text);
    }
  }
  return shares;
}

void add_conversions(CLI::App& command, convert::StudyRequest& study, std::vector<std::string>& shares) {
  add_text(command, "--convert", study.source, "RUN",
           "instead of CONFIG: convert this dense run to each config of --to, then continue training all of them and "
           "the run itself");
  add_list(command, "--to", study.targets, "CONFIG,...", "--convert: configs with the attention to convert to");
  add_list(command, "--tokens", shares, "SHARE,...",
           "--convert: training tokens, as shares of the run's (default: 5%); 0%: before training");
  command.add_flag_callback(
      "--no-scratch", [&study] { study.scratch = false; },
      "--convert: without the configs of --to trained from random parameters, which take longest");
}

void add_compare(Program& program) {
  struct Options : Compare {
    std::vector<std::string> shares_text;
    std::string budget_text;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = program.add(
      program.root(), "compare", "Train models under the same budget; print a table and write DIR/report.html.",
      "headroom compare demo/dense_h8 demo/switchhead_h2 --out runs/pair --set train.steps=300\n"
      "  headroom compare a.toml b.toml --out runs/fair --seeds 3 --tune train.learning_rate=5e-4,1e-3,2e-3\n"
      "  headroom compare --family dense=a.toml,b.toml --family mine=c.toml,d.toml --out runs/sizes\n"
      "  headroom compare --convert runs/dense --to zoo/switchhead --tokens 5% --out runs/converted",
      [&program, options] {
        if (!options->shares_text.empty()) {
          options->study.shares = parse_shares(options->shares_text);
        }
        check_compared(*options, !options->shares_text.empty());
        options->budget =
            options->budget_text.empty() ? 0.0 : parse_duration(options->budget_text, "compare: --budget");
        return program.engine<Compare>(*options);
      });
  command.add_option("CONFIG", options->configs, "TOML files or recipes; the first is the baseline")->type_name("");
  add_repeated(command, "--family", options->families, "NAME=CONFIG,CONFIG,...",
               "instead of CONFIG: models of several sizes; repeatable; reports how much compute each family saves "
               "compared with the first");
  add_conversions(command, options->study, options->shares_text);
  add_out(command, options->out, "folder for the runs and the report", "DIR");
  add_set(command, options->set);
  add_seeds(command, options->seeds);
  add_text(command, "--budget", options->budget_text, "TIME",
           "time for the whole comparison: 90s, 20m, 2h; all models are trained for fewer steps if need be");
  add_repeated(
      command, "--tune", options->tune, "KEY=V1,V2,...",
      "first find the best of these values for each model, with a seed of its own if several are compared; repeatable: "
      "the best combination");
  add_list(command, "--test", options->test, "FILE,...",
           "test data: the table also has each run's figures on it, with its best validation's parameters if "
           "train.keep_best is set");
  add_repeated(command, "--prompt", options->prompts, "TEXT", "prompt for a sample text; repeatable");
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

void add_try(Program& program) {
  struct Options : Try {
    std::string budget_text = "20m";
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = program.add(
      program.root(), "try",
      "Is a change better? Trains both with the same seeds until it is clear. Exit status: 0 keep, 3 discard, 4 "
      "undecided.",
      "headroom try demo/dense_h8 --set model.attention.gate_output=head --budget 20m\n"
      "  headroom try zoo/dense zoo/switchhead --both train.steps=300 --tune",
      [&program, options] {
        if (options->change.empty() && options->set.empty()) {
          user_error("try: either CHANGE or --set is required (headroom try --help)");
        }
        options->budget = parse_duration(options->budget_text, "try: --budget");
        return program.engine<Try>(*options);
      });
  command.add_option("BASE", options->base, "TOML file or recipe to improve on")->required()->type_name("");
  command.add_option("CHANGE", options->change, "TOML file or recipe to try; default: BASE with --set")->type_name("");
  add_repeated(command, "--set", options->set, "KEY=VALUE", "change a key of the config that is tried; repeatable");
  add_repeated(command, "--both", options->both, "KEY=VALUE", "change a key of both configs; repeatable");
  add_text(command, "--budget", options->budget_text, "TIME", "time for new runs: 90s, 20m, 2h");
  add_text(command, "--out", options->out, "DIR", "folder for the runs, which later trials reuse, and trials.jsonl");
  add_value(command, "--pairs", options->pairs, "N", whole_number(2, 100),
            "maximum number of pairs of runs; the test depends on it, so choose it in advance");
  command
      .add_option("--change-seed", options->change_seed,
                  "first seed of the change's runs (default: the base's, so that pairs share data order and "
                  "initial parameters)")
      ->check(whole_number(0))
      ->type_name("N");
  command.add_flag("--tune", options->tune, "first find the best learning rate of each side");
  program.add_threads(command);
}

void add_report(Program& program) {
  auto options = std::make_shared<Report>();
  CLI::App& command = program.add(
      program.root(), "report",
      "Write the page of a comparison, a sweep or a run again, list a folder of runs, or compare existing runs; trains "
      "nothing.",
      "headroom report runs/pair\n  headroom report runs\n  headroom report --watch runs/first\n"
      "  headroom report runs/first runs/second",
      [&program, options] {
        if (options->watch && options->folders.size() > 1) {
          user_error("report: --watch: takes one DIR, got {}", options->folders.size());
        }
        return program.engine(*options);
      });
  command
      .add_option("DIR", options->folders,
                  "folder that was given as --out; a folder of runs: list them; several runs: compare them, the first "
                  "is the baseline")
      ->check(not_empty())
      ->capture_default_str()
      ->type_name("");
  CLI::Option* page = add_text(
      command, "--page", options->page, "FILE",
      "page to write (default: report.html in DIR; of several runs, overlay.html beside the first; of a folder "
      "of runs, none)");
  command.add_flag("--watch", options->watch, "update the page while training continues in DIR")->excludes(page);
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
  add_try(program);
  add_report(program);
  add_demo(program);
}

}  // namespace headroom::cli
