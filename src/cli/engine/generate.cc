#include "headroom/decode/generate.h"

#include <fmt/ranges.h>

#include <chrono>
#include <sstream>

#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/utf8.h"
#include "headroom/store/huggingface.h"
#include "tools/serve/serve.h"
#include "training/parallel/gloo_group.h"
#include "training/tasks/translation/translation.h"

namespace headroom::cli {

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
