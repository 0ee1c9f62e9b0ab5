// The commands evaluate, generate and serve.
#include <fmt/ranges.h>

#include <chrono>
#include <sstream>
#include <utility>

#include "data/text/text.h"
#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/decode/generate.h"
#include "headroom/store/huggingface.h"
#include "tools/serve/serve.h"
#include "tools/zero_shot/zero_shot.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/task.h"
#include "training/tasks/translation/translation.h"
#include "training/train/record/run_folder.h"

namespace headroom::cli {

namespace {

// Returns the prefix of every text: as in --begin, or as in training.
tasks::Prefix prefix_of(const std::string& requested, const store::Checkpoint& checkpoint) {
  const tokenizers::Tokenizer& tokenizer = *checkpoint.tokenizer;
  const std::optional<store::SpecialTokens> stored = store::stored_special_tokens(checkpoint);
  const store::SpecialTokens tokens = store::special_tokens_of(checkpoint);
  const std::int32_t bos = tokens.id("bos_token", tokenizer);
  tasks::Prefix prefix{.kind = tasks::PrefixKind::line_end,
                       .bos = tokens.begin(tokenizer),
                       .stand_in = bos >= 0 ? bos : tokens.id("eos_token", tokenizer)};
  if (stored) {
    prefix.kind = prefix.bos.empty() ? tasks::PrefixKind::none : tasks::PrefixKind::bos;
  }
  if (prefix.bos.empty() && bos >= 0) {
    prefix.bos = {bos};
  }
  for (const auto& [begin, name] : tasks::kPrefixKinds) {
    prefix.kind = requested == name ? begin : prefix.kind;
  }
  if (prefix.kind == tasks::PrefixKind::bos && prefix.bos.empty()) {
    user_error("evaluate: --begin: must be none or line_end, tokenizer {} has no bos token", tokenizer.name());
  }
  return prefix;
}

void write_items(const std::vector<Json>& items, const std::string& path) {
  std::string lines;
  for (const Json& item : items) {
    lines += to_json_line(item) + "\n";
  }
  write_text_file(path, lines);
}

// Runs a zero- or few-shot benchmark.
int run_test(const Evaluate& command, const EngineRequest& request) {
  zero_shot::check_zero_shot_task(command.task);
  const bool generated = command.task == "composition" && command.data.empty();
  if (!command.items.empty()) {
    require_replaceable_file(command.items, "evaluate: --items", "{\"question\":", "does not hold items");
  }
  if (command.data.size() != 1 && !generated) {
    user_error("evaluate: --data: --task {} needs one file, folder or tar archive of the test, got {}", command.task,
               command.data.size());
  }
  const store::OpenedModel opened = open_model({.choice = command.model, .options = {}}, request);
  const store::Checkpoint& checkpoint = opened.checkpoint;
  const models::LanguageModel& model = models::as_language_model(*opened.model, "evaluate --task");
  catch_interrupts();
  const zero_shot::ZeroShotResult result =
      zero_shot::evaluate_zero_shot(model, *checkpoint.tokenizer,
                                    {.task = command.task,
                                     .data = generated ? std::string() : command.data.front(),
                                     .run = checkpoint.config.data,
                                     .shots = command.shots,
                                     .shots_from = command.shots_from,
                                     .prefix = prefix_of(command.begin, checkpoint),
                                     .items = !command.items.empty(),
                                     .by_shots = command.by_shots,
                                     .options = {.batch_size = command.batch_size,
                                                 .context = opened.context,
                                                 .show_progress = true,
                                                 .group = &parallel::default_group()}});
  if (!result.complete) {
    log_info("interrupted");
    return interrupt_status();
  }
  if (!parallel::default_group().leads()) {
    return 0;
  }
  if (!command.items.empty()) {
    write_items(result.items, command.items);
  }
  request.output.text(zero_shot::to_text(result));
  Json document = zero_shot::to_json(result);
  document["checkpoint"] = opened.name;
  document["step"] = checkpoint.step;
  document["config"] = {{"model", "headroom"},
                        {"model_args", fmt::format("checkpoint={}", opened.name)},
                        {"batch_size", command.batch_size},
                        {"device", opened.model->device().str()}};
  add_computation(document, opened);
  request.output.document(document);
  return 0;
}

// Throws UserError for the first of these options that is given.
void refuse(std::initializer_list<std::pair<const char*, bool>> options, const std::string& why) {
  for (const auto& [name, given] : options) {
    if (given) {
      user_error("evaluate: {}: {}", name, why);
    }
  }
}

// Warns if the validation data is not what the run was validated on. Files that a pattern of data.train matches now but
// did not match then change which part of the text is held out.
void warn_of_changed_data(const std::string& run_or_checkpoint, const std::string& now) {
  namespace fs = std::filesystem;
  const fs::path path = fs::absolute(run_or_checkpoint);
  const std::string was =
      train::recorded_origin(fs::is_directory(path) ? path : path.parent_path().parent_path()).data.validation;
  if (!was.empty() && was != now) {
    log_warning("{}: the validation data has changed since the run, from {} to {}; the run may have been trained on it",
                run_or_checkpoint, was, now);
  }
}

// Prints the figures of an evaluation of the data that `read` names.
void print(const tasks::Evaluation& result, const tasks::Task& task, const std::string& read,
           const store::OpenedModel& opened, const Output& output) {
  const tasks::Figures figures = task.figures_of(result.sums);
  if (const std::string uncertain = tasks::uncertainty(figures); !uncertain.empty()) {
    log_info("{}", uncertain);
  }
  Json document = figures;
  const std::optional<store::SpecialTokens> special = store::stored_special_tokens(opened.checkpoint);
  if (special && !special->begin(*opened.checkpoint.tokenizer).empty()) {
    output.text("scored as one text without the tokens that its tokenizer puts in front of a text\n");
    document["begin"] = "none";
  }
  document["data"] = read;
  document["tokens"] = result.predictions();
  document["seconds"] = result.seconds;
  document["checkpoint"] = opened.name;
  document["step"] = opened.checkpoint.step;
  add_computation(document, opened);
  output.text(fmt::format("{}: {} over {} predictions of {}, {}, {}\n", opened.name,
                          tasks::describe(figures, task.figures()), result.predictions(), printable(read),
                          format_duration(result.seconds), document.at("precision").get<std::string>()));
  output.document(document);
}

}  // namespace

int run(const Evaluate& command, const EngineRequest& request) {
  if (!command.task.empty()) {
    refuse({{"--stride", command.stride > 0}}, "must be 0 with --task");
    refuse({{"--target", !command.target.empty()},
            {"--skip-bad-rows", command.skip_bad_rows},
            {"--tokens", command.tokens > 0}},
           "cannot be given with --task " + printable(command.task));
    return run_test(command, request);
  }
  refuse({{"--shots", command.shots > 0},
          {"--shots-from", !command.shots_from.empty()},
          {"--by-shots", command.by_shots},
          {"--begin", !command.begin.empty()},
          {"--items", !command.items.empty()}},
         "needs --task");
  store::OpenedModel opened =
      open_model({.choice = command.model,
                  .options = {{"--stride", command.stride > 0, config::ModelKind::language_model},
                              {"--target", !command.target.empty(), config::ModelKind::encoder_decoder}}},
                 request);
  store::Checkpoint& checkpoint = opened.checkpoint;
  checkpoint.config.data.skip_bad_rows |= command.skip_bad_rows;
  if (checkpoint.config.data.synthetic != config::Synthetic::none) {
    refuse({{"--data", !command.data.empty()},
            {"--stride", command.stride > 0},
            {"--skip-bad-rows", command.skip_bad_rows}},
           fmt::format(
               "must not be given for a model trained on data.synthetic = \"{}\", which generates its validation rows",
               config::name_of(checkpoint.config.data.synthetic)));
  }
  const tasks::Task& task = tasks::task_for(checkpoint.config, "evaluate");
  std::vector<std::string> files = command.data;
  if (!command.target.empty()) {
    if (files.empty()) {
      user_error("evaluate: --target: needs --data, the texts that it translates");
    }
    checkpoint.config.data.validation = std::exchange(files, {});
    checkpoint.config.data.validation_target = command.target;
  }
  const auto data =
      task.open_evaluation({.config = checkpoint.config, .tokenizer = checkpoint.tokenizer, .files = files});
  if (command.data.empty()) {
    warn_of_changed_data(command.model.run, data->identity());
  }

  tasks::EvaluateOptions options{.batch_size = command.batch_size,
                                 .most_tokens = command.tokens,
                                 .stride = command.stride,
                                 .context = opened.context,
                                 .show_progress = true,
                                 .group = &parallel::default_group()};
  catch_interrupts();
  constexpr double kLarge = 5e6;
  if (const double predictions =
          data->rows(checkpoint.config, 0) * static_cast<double>(checkpoint.config.model.context_length);
      command.tokens == 0 && predictions > kLarge && parallel::default_group().leads()) {
    log_info("evaluate: {} predictions; --tokens N makes N of them, spread over the data", format_count(predictions));
  }
  const tasks::Evaluation result = data->evaluate(*opened.model, options);
  if (!result.complete) {
    log_info("interrupted after {} predictions", result.predictions());
    return interrupt_status();
  }
  if (!parallel::default_group().leads()) {
    return 0;
  }
  const std::string read =
      files.empty() ? data::corpus_name(checkpoint.config.data, data::Split::validation) : data::named_together(files);
  print(result, task, read, opened, request.output);
  return 0;
}

namespace {

void write(Json document, const store::OpenedModel& opened, const Output& output) {
  add_computation(document, opened);
  output.document(document);
}

int continue_text(const Generate& command, const store::OpenedModel& opened, const Output& output) {
  const models::LanguageModel& model = models::as_language_model(*opened.model, "generate");
  decode::GenerateOptions options;
  const Sampling& given = command.sampling;
  options.tokens = given.tokens.value_or(options.tokens);
  options.temperature = given.temperature.value_or(options.temperature);
  options.top_k = given.top_k.value_or(options.top_k);
  options.top_p = given.top_p.value_or(options.top_p);
  options.seed = given.seed.value_or(options.seed);
  const tokenizers::Tokenizer& tokenizer = *opened.checkpoint.tokenizer;
  if (const auto special = store::stored_special_tokens(opened.checkpoint)) {
    options.begin = special->begin(tokenizer);
    options.ends = special->ends(tokenizer);
  }
  options.context = opened.context;
  // The prompt is printed with the first piece of its continuation, so that nothing is printed if the options are
  // invalid.
  bool begun = false;
  options.on_text = [&](std::string_view piece) {
    output.text(begun ? std::string(piece) : command.prompt + std::string(piece));
    begun = true;
  };
  const decode::Generation result = decode::generate(model, tokenizer, command.prompt, options);
  output.text(begun ? "\n" : command.prompt + "\n");
  log_info("{} tokens, {:.1f} tokens per second", result.tokens, result.tokens_per_second);
  write({{"text", result.text},
         {"tokens", result.tokens},
         {"tokens_per_second", result.tokens_per_second},
         {"cache_numbers", result.cache_elements}},
        opened, output);
  return 0;
}

int translate_text(const Generate& command, const store::OpenedModel& opened, const Output& output) {
  if (!is_utf8(command.prompt)) {
    user_error("generate: --prompt: must be valid UTF-8");
  }
  std::vector<std::string> sentences;
  std::istringstream lines(command.prompt);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    sentences.push_back(line);
  }
  catch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  const tasks::Translations translations =
      tasks::translate(models::as_encoder_decoder(*opened.model, "generate"), *opened.checkpoint.tokenizer, sentences,
                       opened.config().decoding, {.batch_size = 32, .context = opened.context});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (translations.texts.size() < sentences.size()) {
    return interrupt_status();
  }
  if (translations.cut > 0) {
    log_warning("{} of {} sentences were cut to {} tokens (model.context_length - 1)", translations.cut,
                sentences.size(), opened.config().model.context_length - 1);
  }
  const std::string text = fmt::format("{}", fmt::join(translations.texts, "\n"));
  output.text(text + "\n");
  const double rate = static_cast<double>(translations.tokens) / seconds;
  log_info("{} tokens, {:.1f} tokens per second", translations.tokens, rate);
  write({{"text", text}, {"tokens", translations.tokens}, {"tokens_per_second", rate}}, opened, output);
  return 0;
}

}  // namespace

int run(const Generate& command, const EngineRequest& request) {
  const Sampling& given = command.sampling;
  constexpr config::ModelKind kContinues = config::ModelKind::language_model;
  const store::OpenedModel opened =
      open_model({.choice = command.model,
                  .options = {{"--tokens", given.tokens.has_value(), kContinues},
                              {"--temperature", given.temperature.has_value(), kContinues},
                              {"--top-k", given.top_k.has_value(), kContinues},
                              {"--top-p", given.top_p.has_value(), kContinues},
                              {"--seed", given.seed.has_value(), kContinues}},
                  .writes = true},
                 request);
  const bool translates = opened.config().model.kind == config::ModelKind::encoder_decoder;
  return translates ? translate_text(command, opened, request.output) : continue_text(command, opened, request.output);
}

namespace {

// While a run trains, its newest checkpoint may be replaced before it has been read.
store::OpenedModel open_newest(const ModelChoice& choice, const EngineRequest& request) {
  constexpr int kTries = 3;
  for (int tried = 1;; ++tried) {
    try {
      return open_model({.choice = choice, .options = {}, .writes = true}, request);
    } catch (const UserError&) {
      if (tried == kTries) {
        throw;
      }
    }
  }
}

}  // namespace

int run(const Serve& command, const EngineRequest& request) {
  serve::names_of(command.runs);
  serve::Server server(command.options);  // reports an invalid address before models are loaded
  std::vector<serve::NamedModel> models;
  for (const std::string& run : command.runs) {
    const ModelChoice choice{
        .run = run, .average = 1, .decoding = {}, .device = command.device, .precision = command.precision};
    models.push_back({.run = run, .opened = open_newest(choice, request)});
  }
  catch_interrupts();
  server.run(
      std::move(models),
      [&](const std::string& url, const std::vector<std::string>& names) {
        // Printed even with --quiet: programs that start a server wait for this line.
        std::fprintf(stderr, "listening on %s\n", url.c_str());
        std::fflush(stderr);
        log_info("models: {}", fmt::join(names, ", "));
        log_info("to inspect the models, open {}/inspect", url);
        request.output.document({{"url", url}, {"models", names}});
      },
      interrupted);
  return 0;
}

}  // namespace headroom::cli
