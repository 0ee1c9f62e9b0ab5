// analyse, inspect: looking inside trained models.
#include <memory>

#include "program.h"

namespace headroom::cli {

namespace {

void add_checkpoints(CLI::App& command, std::string& checkpoints, const char* about) {
  command.add_option("--checkpoints", checkpoints, about)->check(one_of({"all"}))->type_name("all");
}

void add_analyse(Program& program) {
  auto options = std::make_shared<Analyse>();
  CLI::App& command =
      program.add(program.root(), "analyse",
                  "Look inside trained models: attention maps, experts, heads, as numbers and as a page.",
                  "headroom analyse runs/first --out runs/inside\n"
                  "  headroom analyse runs/dense runs/mine --data held_out.txt --what maps,experts --out runs/both",
                  [&program, options] {
                    if (!options->text.empty() && !options->data.empty()) {
                      user_error("analyse: --text and --data cannot both be given: each is what the models read");
                    }
                    return program.engine(*options);
                  });
  add_runs(command, options->models.runs, "run folders or checkpoint files");
  command
      .add_option("--text", options->text,
                  "the text to read; for a model of translation a source and its translation with a tab between them, "
                  "for a classifier of pairs both texts likewise")
      ->check(not_empty())
      ->type_name("TEXT");
  command
      .add_option("--data", options->data,
                  "a file to read, of the kind that the run was validated on (default: the beginning of the run's "
                  "validation data)")
      ->check(not_empty())
      ->type_name("FILE");
  command
      .add_option("--what", options->what,
                  "circuits, composition, diversity, experts, induction, maps, mixture, rank (default: all that the "
                  "model has)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(not_empty())
      ->type_name("NAME,...");
  add_checkpoints(command, options->models.checkpoints,
                  "all: each checkpoint of the runs, oldest first (default: the newest of each)");
  add_out(command, options->out, "folder of analysis.json, report.html and analysis.safetensors", "DIR");
  add_device(command, options->models.device);
  add_precision(command, options->models.precision);
  program.add_threads(command);
}

void add_inspect(Program& program) {
  auto options = std::make_shared<Inspect>();
  CLI::App& command = program.add(
      program.root(), "inspect",
      "Write a page to look around in trained models: attention maps, where each layer's output comes from.",
      "headroom inspect runs/first --text poem.txt --out inside.html\n"
      "  headroom inspect runs/dense runs/switchhead --out both.html",
      [&program, options] { return program.engine(*options); });
  add_runs(command, options->models.runs,
           "run folders or checkpoint files of language models or classifiers with one tokenizer");
  command
      .add_option("--text", options->text,
                  "a file that the models read, no longer than their context (default: the beginning of the first "
                  "run's validation data)")
      ->check(not_empty())
      ->type_name("FILE");
  add_checkpoints(command, options->models.checkpoints,
                  "all: each checkpoint of the runs, with a slider (default: the newest of each)");
  add_out(command, options->out, "the page, one HTML file that needs nothing else", "FILE");
  add_device(command, options->models.device);
  add_precision(command, options->models.precision);
  program.add_threads(command);
}

}  // namespace

void add_inspecting_commands(Program& program) {
  add_analyse(program);
  add_inspect(program);
}

}  // namespace headroom::cli
