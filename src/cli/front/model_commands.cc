// The commands train, evaluate, generate and serve, which train a model and use it.
#include <memory>

#include "headroom/config/config.h"
#include "program.h"

namespace headroom::cli {

namespace {

// Adds the options for opening a model. add_run() adds the argument that names the model.
void add_model(CLI::App& command, ModelChoice& model) {
  add_value(command, "--average", model.average, "N", whole_number(1, 1 << 20),
            "average the parameters of the run's newest N checkpoints");
  add_value(command, "--beam", model.decoding.beam, "N", whole_number(1, 1024),
            "translation: hypotheses of the beam search; 1: greedy (default: the run's decoding.beam_size)");
  add_value(command, "--length-penalty", model.decoding.length_penalty, "X", number(-10.0, 10.0),
            "translation: log-probabilities are divided by the length to this power (default: the run's "
            "decoding.length_penalty)");
  add_device(command, model.device);
  add_precision(command, model.precision);
}

void add_evaluate(Program& program) {
  struct Options : Evaluate {
    std::vector<std::string> more;  // a shell expands --data *.txt to several arguments
  };
  auto options = std::make_shared<Options>();
  CLI::App& command = program.add(
      program.root(), "evaluate",
      "Evaluate a trained model: perplexity, accuracy or the figures of its task, or a zero- or few-shot test.",
      "headroom evaluate runs/first --data held_out.txt\n  headroom evaluate runs/first --task blimp --data "
      "blimp.tar.gz",
      [&program, options] {
        if (options->data.empty() && !options->more.empty()) {
          user_error("evaluate: {}: unexpected argument; name files to evaluate on with --data", options->more.front());
        }
        options->data.insert(options->data.end(), options->more.begin(), options->more.end());
        return program.engine<Evaluate>(*options);
      });
  add_run(command, options->model.run);
  command
      .add_option("--data", options->data,
                  "files to evaluate on, in a format of the run's validation data: text, .gz, .zst, .jsonl, CSV, TSV "
                  "or a token file (default: the run's validation data)")
      ->allow_extra_args(false)  // RUN may follow
      ->check(not_empty())
      ->type_name("FILE");
  add_text(command, "FILE", options->more, "", "more files for --data");
  add_text(command, "--task", options->task, "NAME",
           "zero- or few-shot test: lambada, blimp, cbt, piqa, ..., composition, target_loss; --data is its file, "
           "folder or tar archive");
  add_value(command, "--shots", options->shots, "N", whole_number(0, 1000),
            "with --task: number of solved examples before each question");
  add_text(command, "--shots-from", options->shots_from, "FILE",
           "with --shots: file, folder or archive of the solved examples (default: other questions of --data)");
  command.add_flag("--by-shots", options->by_shots,
                   "with --task composition: figures by number of solved examples before an answer");
  add_choice(command, "--begin", options->begin, {"none", "line_end", "bos"},
             "with --task: what precedes each text: nothing, a line end, or the bos token; lm_eval uses none with most "
             "models, and bos if their tokenizer adds it (default: line_end for models trained by Headroom; for "
             "imported ones bos if their tokenizer adds it, else none)");
  add_text(command, "--items", options->items, "FILE",
           "with --task: write a JSON line for each question, with the log-probability of each choice");
  add_value(command, "--stride", options->stride, "N", whole_number(0, 1 << 30),
            "for text: distance of the starts of overlapping windows, in tokens; 0: chunks that do not overlap");
  add_value(command, "--tokens", options->tokens, "N", whole_number(0),
            "limit on the number of predictions, which are spread over the data, as train.evaluate_tokens; 0: all");
  add_text(command, "--target", options->target, "FILE",
           "translation: files with the translations of --data, line by line (default: --data holds both, separated by "
           "a tab)")
      ->allow_extra_args(false);
  add_value(command, "--batch-size", options->batch_size, "N", whole_number(1, 1 << 20),
            "number of streams, examples or texts evaluated at a time");
  command.add_flag("--skip-bad-rows", options->skip_bad_rows,
                   "skip rows of the data that cannot be used, and report how many");
  add_model(command, options->model);
  program.add_threads(command);
}

// default_str() shows the defaults of decode::GenerateOptions.
void add_sampling(CLI::App& command, Sampling& sampling) {
  add_value(command, "--tokens", sampling.tokens, "N", whole_number(0), "number of tokens to generate")
      ->default_str("100");
  add_value(command, "--temperature", sampling.temperature, "X", number(0.0, 1e6), "sampling temperature; 0: greedy")
      ->default_str("1");
  add_value(command, "--top-k", sampling.top_k, "K", whole_number(0), "sample from the K likeliest tokens; 0: from all")
      ->default_str("0");
  add_value(command, "--top-p", sampling.top_p, "P", number(1e-9, 1.0),
            "sample from the fewest tokens whose probabilities add up to P")
      ->default_str("1");
  add_value(command, "--seed", sampling.seed, "N", whole_number(0), "random seed; the same seed gives the same text")
      ->default_str("1");
}

void add_generate(Program& program) {
  const auto [command, options] = program.add_engine<Generate>(
      program.root(), "generate", "Continue a text, or translate it with a translation model.",
      "headroom generate runs/first --prompt \"def forward(\" --tokens 80 --temperature 0.8\n"
      "  headroom generate runs/de-en --prompt \"Wo ist der Bahnhof?\" --beam 4");
  add_run(command, options->model.run);
  command.add_option("--prompt", options->prompt, "text to continue, or sentences to translate, one per line")
      ->required()
      ->type_name("TEXT");
  add_sampling(command, options->sampling);
  add_model(command, options->model);
  program.add_threads(command);
}

void add_limits(CLI::App& command, serve::ServeOptions& serve) {
  add_value(command, "--batch", serve.max_rows, "N", whole_number(1, 1024),
            "number of answers generated at the same time");
  add_value(command, "--queue", serve.queue, "N", whole_number(0, 1 << 16),
            "number of answers that may wait before requests are refused");
  add_value(command, "--prefix-cache", serve.prefix_cache_tokens, "N", whole_number(0, 1 << 24),
            "tokens of prompts cached for prompts with the same prefix; 0: none");
  add_value(command, "--max-length", serve.max_length, "N", whole_number(2, 1 << 24),
            "limit on the tokens of a prompt and its answer together (default: the model's context)");
  add_value(command, "--max-body", serve.max_body_mib, "N", whole_number(1, 1024),
            "limit on the size of a request, in MiB");
  add_value(command, "--timeout", serve.timeout_seconds, "N", number(0.001, 1e6),
            "limit on the time of a request, in seconds");
}

void add_train(Program& program) {
  struct Options : Train {
    bool help_config = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App& command =
      program.add(program.root(), "train", "Train a model and write a run folder.",
                  "headroom train switchhead/wt103_47m --set train.steps=500 --out runs/small", [&program, options] {
                    if (options->help_config) {
                      Output(false).text(config::help_text(options->config));
                      return 0;
                    }
                    if (options->config.empty()) {
                      user_error("train: CONFIG is required (headroom train --help)");
                    }
                    return program.engine<Train>(*options);
                  });
  command.add_option("CONFIG", options->config, "TOML file or recipe")->type_name("");
  add_text(command, "--out", options->out, "DIR", "run folder (default: runs/<name of CONFIG>)");
  add_set(command, options->set);
  command.add_flag_callback(
      "--skip-bad-rows", [options] { options->set.emplace_back("data.skip_bad_rows=true"); },
      "skip rows of the data that cannot be used, and report how many");
  command.add_flag("--resume", options->resume,
                   "continue from the newest checkpoint in the run folder, if there is one");
  program.add_threads(command);
  command.add_flag("--help-config", options->help_config,
                   "explain every key of a config, or the key or table named instead of CONFIG, and exit");
}

void add_serve(Program& program) {
  const auto [command, options] = program.add_engine<Serve>(
      program.root(), "serve", "Serve trained language models over HTTP, with OpenAI's completions API.",
      "headroom serve runs/first\n  headroom serve runs/first runs/second --port 9000 --api-key-file key.txt");
  add_runs(command, options->runs, "run folders or checkpoint files; a model is named after the last part of its path");
  constexpr std::int64_t kMaxPort = 65535;
  serve::ServeOptions& server = options->options;
  add_text(command, "--host", server.host, "HOST", "address to listen on; 127.0.0.1: only this machine can connect");
  add_value(command, "--port", server.port, "N", whole_number(0, kMaxPort), "port to listen on; 0: any free port");
  add_text(command, "--api-key-file", server.api_key_file, "FILE", "file with the API key that requests must send");
  add_limits(command, server);
  add_device(command, options->device);
  add_precision(command, options->precision);
  program.add_threads(command);
}

}  // namespace

void add_model_commands(Program& program) {
  add_train(program);
  add_evaluate(program);
  add_generate(program);
  add_serve(program);
}

}  // namespace headroom::cli
