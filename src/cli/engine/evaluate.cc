#include "headroom/eval/evaluate.h"

#include <unistd.h>

#include <algorithm>

#include "engine.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/log.h"
#include "headroom/core/system.h"
#include "headroom/data/text.h"
#include "headroom/train/precision.h"

namespace headroom::cli {

namespace {

namespace fs = std::filesystem;

// Text as tokens of the checkpoint's tokenizer, in a file that goes as soon as it is mapped.
std::shared_ptr<const data::TokenFile> encode(data::TextSource& text, const data::Tokenizer& tokenizer) {
  const fs::path folder = cache_folder();
  make_folder(folder);
  const fs::path file = folder / fmt::format("evaluate-{}.tokens", getpid());
  data::write_token_file(text, tokenizer, file);
  auto tokens = std::make_shared<const data::TokenFile>(file);
  fs::remove(file);
  return tokens;
}

std::shared_ptr<const data::TokenFile> open_tokens(const std::vector<std::string>& given,
                                                   const eval::Checkpoint& checkpoint) {
  const config::DataOptions& options = checkpoint.config.data;
  const std::vector<std::string>& files = given.empty() ? options.validation : given;
  if (std::any_of(files.begin(), files.end(), data::is_token_file)) {
    if (files.size() > 1) {
      misuse("evaluate: --data: a prepared token file must stand alone, got {} files", files.size());
    }
    return std::make_shared<const data::TokenFile>(files.front());
  }
  const std::unique_ptr<data::TextSource> text =
      given.empty() ? data::open_part(options, data::Part::validation) : data::open_text(given, options);
  return encode(*text, *checkpoint.tokenizer);
}

}  // namespace

int run(const Evaluate& command, const EngineRequest& request) {
  const fs::path file = eval::find_checkpoint(command.model);
  const eval::Checkpoint checkpoint = eval::read_checkpoint(file);
  const std::shared_ptr<const data::TokenFile> tokens = open_tokens(command.data, checkpoint);
  eval::check_tokenizer(checkpoint, *tokens);
  const models::LanguageModel model = eval::build_model(checkpoint);

  eval::EvaluateOptions options{.batch_size = command.batch_size, .context = {}, .show_progress = true};
  options.context.implementation = checkpoint.config.train.implementation;
  options.context.compute_dtype = train::compute_dtype(checkpoint.config.train.precision);
  catch_interrupts();
  const eval::Evaluation result = eval::evaluate(model, tokens, options);
  if (!result.complete) {
    log_info("interrupted after {} of {} tokens", result.tokens, tokens->size());
    return kInterrupted;
  }
  request.output.text(fmt::format("{}: perplexity {:.3f}, loss {:.4f}, {:.4f} bits per byte over {} tokens, {}\n",
                                  file.string(), result.perplexity, result.loss, result.bits_per_byte, result.tokens,
                                  format_duration(result.seconds)));
  request.output.document({{"loss", result.loss},
                           {"perplexity", result.perplexity},
                           {"bits_per_byte", result.bits_per_byte},
                           {"tokens", result.tokens},
                           {"seconds", result.seconds},
                           {"checkpoint", file.string()},
                           {"step", checkpoint.step}});
  return 0;
}

}  // namespace headroom::cli
