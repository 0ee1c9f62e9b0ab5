// The commands that examine models and exchange their parameters, and the commands bench and doctor, which examine the
// machine.

#include <fmt/ranges.h>

#include "program.h"
#include "tools/bench/bench.h"

namespace headroom::cli {

namespace {

void add_checkpoints(CLI::App& command, std::string& checkpoints, const char* about) {
  command.add_option("--checkpoints", checkpoints, about)->check(one_of({"all"}))->type_name("all");
}

void add_force(CLI::App& command, bool& force, const char* what) {
  command.add_flag("--force", force, fmt::format("overwrite {} at --out", what));
}

// Adds --text and `file`, of which at most one may be given.
void add_text_or_file(CLI::App& command, std::string& text, const std::string& about_text, const std::string& file_name,
                      std::string& file, const std::string& about_file) {
  CLI::Option* const given = add_text(command, "--text", text, "TEXT", about_text);
  add_text(command, file_name, file, "FILE", about_file)->excludes(given);
}

void add_analyse(Program& program) {
  const auto [command, options] = program.add_engine<Analyse>(
      program.root(), "analyse",
      "Analyse trained models: attention maps, experts, heads; writes figures and an HTML page.",
      "headroom analyse runs/first --out runs/inside\n"
      "  headroom analyse runs/dense runs/mine --file held_out.txt --what maps,rank --out runs/both");
  add_runs(command, options->models.runs, "run folders or checkpoint files");
  add_text_or_file(command, options->text,
                   "text to read; for a translation model a source and its translation, separated by a tab; for a "
                   "classifier of pairs both texts, separated by a tab",
                   "--file,--data", options->file,
                   "file to read, in a format of the run's validation data (default: the beginning of that data)");
  add_list(command, "--what", options->what, "NAME,...",
           "circuits, composition, diversity, experts, importance, induction, maps, mixture, rank (default: all that "
           "apply to the model)");
  command
      .add_option("--samples", options->samples,
                  "sample texts for the analyses that average over samples (default: 8 for rank, 4 for composition, "
                  "importance and mixture)")
      ->check(whole_number(1))
      ->type_name("N");
  command
      .add_option("--key", options->key,
                  "composition: position of the key of the pair that is shown, from 0 (default: the one whose weight "
                  "changes most); the query is the last token")
      ->check(whole_number(0))
      ->type_name("N");
  add_checkpoints(command, options->models.checkpoints,
                  "all: every checkpoint of the runs, oldest first (default: the newest of each run)");
  add_out(command, options->out, "folder for analysis.json, report.html and analysis.safetensors", "DIR");
  add_force(command, options->force, "the analysis");
  add_device(command, options->models.device);
  add_precision(command, options->models.precision);
  program.add_threads(command);
}

void add_inspect(Program& program) {
  const auto [command, options] = program.add_engine<Inspect>(
      program.root(), "inspect",
      "Write an interactive page about trained models: attention maps, and what each layer's output consists of.",
      "headroom inspect runs/first --file poem.txt --out inside.html\n"
      "  headroom inspect runs/dense runs/switchhead --out both.html");
  add_runs(command, options->models.runs,
           "run folders or checkpoint files of language models or classifiers with one tokenizer");
  add_text_or_file(command, options->text, "text to read, no longer than the models' context", "--file", options->file,
                   "file with the text to read (default: the beginning of the first run's validation data)");
  add_checkpoints(command, options->models.checkpoints,
                  "all: every checkpoint of the runs, with a slider (default: the newest of each run)");
  add_out(command, options->out, "self-contained HTML file to write", "FILE");
  add_device(command, options->models.device);
  add_precision(command, options->models.precision);
  program.add_threads(command);
}

void add_info(Program& program, CLI::App& group) {
  const auto [command, options] = program.add_engine<CheckpointInfo>(
      group, "info", "Show what a checkpoint holds: parameters, config, tokenizer, tensors.",
      "headroom checkpoint info runs/first");
  add_run(command, options->run);
}

void add_export(Program& program, CLI::App& group) {
  const auto [command, options] = program.add_engine<CheckpointExport>(
      group, "export", "Write the parameters without the training state, as a checkpoint or a Hugging Face folder.",
      "headroom checkpoint export runs/first --out first.safetensors\n"
      "  headroom checkpoint export runs/first --format huggingface --out first_hf");
  add_run(command, options->run);
  add_out(command, options->out, "file to write; with --format huggingface a folder", "FILE");
  add_force(command, options->force, "an export");
  add_choice(command, "--format", options->format, {"headroom", "huggingface"},
             "headroom: a checkpoint; huggingface: config.json, model.safetensors and tokenizer, if transformers has "
             "the model's layers");
}

void add_import(Program& program) {
  const auto [command, options] = program.add_engine<Import>(
      program.root(), "import",
      "Convert a Hugging Face model (GPT-2, GPT-NeoX, relatives of LLaMA, ...) to a checkpoint.",
      "headroom import pythia-70m --out pythia.safetensors\n"
      "  headroom generate pythia.safetensors --prompt \"Once upon a time\"");
  command
      .add_option("FOLDER", options->folder,
                  "folder with config.json, safetensors and tokenizer.json (or vocab.json and merges.txt)")
      ->required()
      ->type_name("");
  add_out(command, options->out, "checkpoint to write", "FILE");
  add_force(command, options->force, "an import or export");
  command
      .add_option("--tokenizer", options->tokenizer, "file or folder of another tokenizer (default: the one in FOLDER)")
      ->type_name("FILE");
}

void check_convert(const Convert& options) {
  if (options.job.to.empty() == options.heads.empty()) {
    user_error("convert: expected either --to CONFIG or --heads auto");
  }
  if (options.heads.empty() != options.budget.empty()) {
    user_error("convert: --heads auto and --budget must be given together");
  }
  if (options.heads.empty() && (options.experts > 0 || !options.config_out.empty() || !options.page.empty())) {
    user_error("convert: --experts, --config-out and --page need --heads auto");
  }
  if (!options.heads.empty() && !(options.layers.empty() && options.set.empty())) {
    user_error("convert: --layers and --set need --to");
  }
}

void add_convert(Program& program) {
  auto options = std::make_shared<Convert>();
  CLI::App& command = program.add(
      program.root(), "convert", "Turn a trained dense model into one with the attention of another config.",
      "headroom convert runs/dense --to zoo/switchhead --out converted.safetensors\n"
      "  headroom train zoo/switchhead --set train.start_from=converted.safetensors --out runs/converted\n"
      "  headroom convert runs/dense --heads auto --budget macs=0.5 --out fewer.safetensors",
      [&program, options] {
        check_convert(*options);
        return program.engine(*options);
      });
  convert::ConvertRequest& job = options->job;
  add_run(command, job.source);
  add_text(command, "--to", job.to, "CONFIG", "TOML file or recipe with the attention that the result has");
  add_text(command, "--heads", options->heads, "auto", "instead of --to: choose the heads of each layer under --budget")
      ->check(one_of({"auto"}));
  add_text(command, "--budget", options->budget, "KEY=SHARE,...",
           "--heads: limits macs, kv_cache and step_time, as shares of the source's, and loss, in nats to add");
  add_value(command, "--experts", options->experts, "M", whole_number(2),
            "--heads: also try SwitchHead layers with M experts a head");
  add_text(command, "--config-out", options->config_out, "FILE", "--heads: config of the result to write");
  add_text(command, "--page", options->page, "FILE", "--heads: HTML page to write, with the loss against the budget");
  add_out(command, options->out, "checkpoint to write", "FILE");
  add_repeated(command, "--data", job.data, "FILE",
               "texts to compute activations on, as in data.train (default: the run's)");
  add_value(command, "--tokens", job.tokens, "N", whole_number(1),
            "number of its tokens to use (default: up to 32,768)");
  add_value(command, "--fit", job.fit_steps, "N", whole_number(0), "steps of fitting each layer to the source's");
  add_value(command, "--joint-fit", job.joint_steps, "N", whole_number(0),
            "steps of fitting all converted layers together to the source's predictions");
  add_text(command, "--layers", options->layers, "N,N", "layers to convert, from 0 (default: all)");
  add_value(command, "--seed", job.seed, "N", whole_number(0), "seed of new parameters and of the fit");
  add_force(command, options->force, "a conversion, import or export");
  add_set(command, options->set);
  program.add_threads(command);
}

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

void add_inspecting_commands(Program& program) {
  add_analyse(program);
  add_inspect(program);
  CLI::App& group = program.add_group("checkpoint", "Show what a checkpoint holds, or export its parameters.",
                                      "headroom checkpoint info runs/first");
  add_info(program, group);
  add_export(program, group);
  add_import(program);
  add_convert(program);
}

void add_checking_commands(Program& program) {
  add_bench(program);
  add_doctor(program);
}

}  // namespace headroom::cli
