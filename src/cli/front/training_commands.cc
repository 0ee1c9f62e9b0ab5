// train, evaluate, generate, compare, sweep, advise, report, demo: the engine's main jobs.
#include <memory>

#include "headroom/config/config.h"
#include "headroom/core/duration.h"
#include "program.h"

namespace headroom::cli {

namespace {

void add_train(Program& program) {
  struct Options : Train {
    bool help_config = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command =
      program.add(program.root(), "train", "Train a model and write a run folder.",
                  "headroom train switchhead/wt103_47m --set train.steps=500 --out runs/small", [&program, options] {
                    if (options->help_config) {
                      Output(false).text(config::help_text());
                      return 0;
                    }
                    if (options->config.empty()) {
                      misuse("train: CONFIG is required (headroom train --help)");
                    }
                    return program.engine<Train>(*options);
                  });
  command.add_option("CONFIG", options->config, "TOML file or recipe")->type_name("");
  command.add_option("--out", options->out, "run folder (default: runs/<name of CONFIG>)")
      ->check(not_empty())
      ->type_name("DIR");
  add_set(command, options->set);
  command.add_flag_callback(
      "--skip-bad-rows", [options] { options->set.emplace_back("data.skip_bad_rows=true"); },
      "leave out rows of the data that cannot be used and say how many");
  command.add_flag("--resume", options->resume,
                   "continue from the newest checkpoint in the run folder, if there is one");
  program.add_threads(command);
  command.add_flag("--help-config", options->help_config, "explain every key of a config and exit");
}

void add_average(CLI::App& command, std::int64_t& average) {
  command.add_option("--average", average, "take the mean of the run's newest N checkpoints")
      ->capture_default_str()
      ->check(whole_number(1, 1 << 20))
      ->type_name("N");
}

void add_decoding(CLI::App& command, Decoding& decoding) {
  command
      .add_option("--beam", decoding.beam,
                  "translation: beginnings kept side by side, 1: the likeliest token each time (default: the run's "
                  "decoding.beam)")
      ->check(whole_number(1, 1024))
      ->type_name("N");
  command
      .add_option("--length-penalty", decoding.length_penalty,
                  "translation: power of the length that log-probabilities are divided by (default: the run's "
                  "decoding.length_penalty)")
      ->check(number(-10.0, 10.0))
      ->type_name("X");
}

// How the model that add_run() names is opened.
void add_model(CLI::App& command, ModelChoice& model) {
  add_average(command, model.average);
  add_decoding(command, model.decoding);
  add_device(command, model.device);
  add_precision(command, model.precision);
}

void add_evaluate(Program& program) {
  struct Options : Evaluate {
    std::vector<std::string> more;  // what shells make of --data *.txt
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = program.add(
      program.root(), "evaluate",
      "Measure a trained model: perplexity, accuracy, whatever it was trained for, or a test without training.",
      "headroom evaluate runs/first --data held_out.txt\n  headroom evaluate runs/first --task blimp --data "
      "blimp.tar.gz",
      [&program, options] {
        if (options->data.empty() && !options->more.empty()) {
          misuse("evaluate: {}: files to evaluate on follow --data", options->more.front());
        }
        options->data.insert(options->data.end(), options->more.begin(), options->more.end());
        return program.engine<Evaluate>(*options);
      });
  add_run(command, options->model.run);
  command
      .add_option("--data", options->data,
                  "files of the kind that the run was validated on, such as text, .gz, .zst, .jsonl, CSV or TSV, a "
                  "prepared token "
                  "file (default: the run's validation data)")
      ->allow_extra_args(false)  // they may stand before RUN
      ->check(not_empty())
      ->type_name("FILE");
  command.add_option("FILE", options->more, "further files of --data")->check(not_empty())->type_name("");
  command
      .add_option("--task", options->task,
                  "a test scored from log-probabilities: lambada, blimp, cbt, piqa, ..., composition, target_loss; "
                  "--data is its file, "
                  "folder or tar archive")
      ->check(not_empty())
      ->type_name("NAME");
  command.add_option("--shots", options->shots, "with --task: solved examples in front of each question")
      ->capture_default_str()
      ->check(whole_number(0, 1000))
      ->type_name("N");
  command
      .add_option(
          "--shots-from", options->shots_from,
          "with --shots: the file, folder or archive of the solved examples (default: other questions of --data)")
      ->check(not_empty())
      ->type_name("FILE");
  command.add_flag("--by-shots", options->by_shots,
                   "with --task composition: figures by the solved examples in front of an answer");
  command
      .add_option(
          "--begin", options->begin,
          "with --task: what is in front of each text: nothing, a line end, or the model's bos token; nothing is "
          "what lm_eval has with most models, bos with those whose tokenizer adds it (default: as in the model's "
          "training: line_end where that was here, bos where an imported tokenizer adds it, else none)")
      ->check(one_of({"none", "line_end", "bos"}))
      ->type_name("none|line_end|bos");
  command
      .add_option("--items", options->items,
                  "with --task: write a JSON line a question, with the log-probability of each choice")
      ->check(not_empty())
      ->type_name("FILE");
  command
      .add_option("--stride", options->stride,
                  "on text: windows of the model's context that begin N tokens apart; 0: chunks that do not overlap")
      ->capture_default_str()
      ->check(whole_number(0, 1 << 30))
      ->type_name("N");
  command
      .add_option("--target", options->target,
                  "translation: files whose lines translate those of --data (without: --data is tab-separated)")
      ->allow_extra_args(false)
      ->check(not_empty())
      ->type_name("FILE");
  command.add_option("--batch-size", options->batch_size, "contiguous streams, examples or texts read side by side")
      ->capture_default_str()
      ->check(whole_number(1, 1 << 20))
      ->type_name("N");
  command.add_flag("--skip-bad-rows", options->skip_bad_rows,
                   "leave out rows of the data that cannot be used and say how many");
  add_model(command, options->model);
  program.add_threads(command);
}

// What follows "=" is what a language model does where the option is not given.
void add_sampling(CLI::App& command, Sampling& sampling) {
  command.add_option("--tokens", sampling.tokens, "tokens to add")
      ->default_str("100")
      ->check(whole_number(0))
      ->type_name("N");
  command.add_option("--temperature", sampling.temperature, "0: always the likeliest token")
      ->default_str("1")
      ->check(number(0.0, 1e6))
      ->type_name("X");
  command.add_option("--top-k", sampling.top_k, "draw from the k likeliest tokens; 0: from all")
      ->default_str("0")
      ->check(whole_number(0))
      ->type_name("K");
  command.add_option("--top-p", sampling.top_p, "draw from the fewest tokens that together reach this probability")
      ->default_str("1")
      ->check(number(1e-9, 1.0))
      ->type_name("P");
  command.add_option("--seed", sampling.seed, "the same seed gives the same text")
      ->default_str("1")
      ->check(whole_number(0))
      ->type_name("N");
}

void add_generate(Program& program) {
  auto options = std::make_shared<Generate>();
  CLI::App& command =
      program.add(program.root(), "generate", "Continue a text, or translate it with a model of translation.",
                  "headroom generate runs/first --prompt \"def forward(\" --tokens 80 --temperature 0.8\n"
                  "  headroom generate runs/de-en --prompt \"Wo ist der Bahnhof?\" --beam 4",
                  [&program, options] { return program.engine(*options); });
  add_run(command, options->model.run);
  command.add_option("--prompt", options->prompt, "the text to continue, or sentences to translate, one a line")
      ->required()
      ->type_name("TEXT");
  add_sampling(command, options->sampling);
  add_model(command, options->model);
  program.add_threads(command);
}

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
          misuse("compare: either CONFIG or --family is required (headroom compare --help)");
        }
        if (!options->configs.empty() && !options->families.empty()) {
          misuse("compare: CONFIG ({}) and --family cannot both be given: each model is one of a family, or none is",
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

void add_training_commands(Program& program) {
  add_train(program);
  add_evaluate(program);
  add_generate(program);
  add_compare(program);
  add_sweep(program);
  add_advise(program);
  add_report(program);
  add_demo(program);
}

}  // namespace headroom::cli
