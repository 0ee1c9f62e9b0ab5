// evaluate, generate: what is done with a trained model.
#include <memory>

#include "program.h"

namespace headroom::cli {

namespace {

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
                  "decoding.beam_size)")
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
          user_error("evaluate: {}: files to evaluate on follow --data", options->more.front());
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

}  // namespace

void add_model_commands(Program& program) {
  add_evaluate(program);
  add_generate(program);
}

}  // namespace headroom::cli
