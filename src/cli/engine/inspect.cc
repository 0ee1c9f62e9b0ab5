// The commands analyse and inspect.
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>

#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/huggingface.h"
#include "tools/analyse/analyse.h"
#include "tools/analyse/inspector/inspector.h"
#include "tools/analyse/model_runner.h"
#include "tools/serve/serve.h"
#include "training/tasks/classes/classification.h"
#include "training/tasks/language/language_modelling.h"

namespace headroom::cli {

namespace {

// Limits the packed values; with base64 and all other content, the page has up to 20 MB.
constexpr std::int64_t kMaxPageBytes = 14'000'000;
constexpr std::int64_t kMaxTextBytes = 16 << 20;

// Returns the file that the command names, or --text if that is the name of a file (earlier versions had no --file);
// empty if there is none.
std::string file_of(const Inspect& command) {
  std::error_code unknown;  // for example, a name that is too long
  if (std::filesystem::exists(command.text, unknown)) {
    return command.text;
  }
  if (!command.text.empty() && command.text.find_first_of(" \t\n") == std::string::npos) {
    user_error("inspect: --text: {} is a single word and not a file; give a text of several words, or --file FILE",
               printable(command.text));
  }
  return command.file;
}

// Returns the tokens of --text or --file; empty without either. A language model's text begins with the token that an
// imported tokenizer puts in front.
std::vector<std::int32_t> given_text(const Inspect& command, const store::Checkpoint& checkpoint,
                                     const tokenizers::Tokenizer& tokenizer) {
  const bool classifies = checkpoint.config.model.has_classes();
  const std::string file = file_of(command);
  std::string text = command.text;
  if (!file.empty()) {
    text = without_byte_order_mark(read_text_file(file, kMaxTextBytes));
    if (classifies) {  // texts of classifiers end without a line end
      text.erase(text.find_last_not_of("\r\n") + 1);
    }
  } else if (text.empty()) {
    return {};
  }
  const std::string name = file.empty() ? "--text" : printable(file);
  std::vector<std::int32_t> ids;
  try {
    tokenizer.encode(text, ids);
  } catch (const UserError& error) {
    user_error("inspect: {}: {}", name, error.what());
  }
  if (ids.empty()) {
    user_error("inspect: {}: is empty", name);
  }
  if (const auto special = store::stored_special_tokens(checkpoint); special && !classifies) {
    const std::vector<std::int32_t> begin = special->begin(tokenizer);
    ids.insert(ids.begin(), begin.begin(), begin.end());
  }
  return ids;
}

std::vector<std::int32_t> text_to_inspect(const Inspect& command, const store::OpenedModel& opened,
                                          const tokenizers::Tokenizer& tokenizer) {
  if (std::vector<std::int32_t> ids = given_text(command, opened.checkpoint, tokenizer); !ids.empty()) {
    return ids;
  }
  const tasks::EvaluationRequest request{
      .config = opened.config(), .tokenizer = opened.checkpoint.tokenizer, .files = {}};
  if (opened.config().model.has_classes()) {
    const data::LabelledSequences set = tasks::evaluation_sequences(request);
    const auto first = set.first.at(0);
    return {first.begin(), first.end()};
  }
  const auto file = tasks::open_evaluation_text(request);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(file->size(), opened.config().model.context_length)));
  file->copy(0, std::ssize(ids), ids.data());
  return ids;
}

// Returns the path of the run's folder, also for one of its checkpoints.
std::string run_of(const ModelChoice& choice) {
  const std::filesystem::path path = std::filesystem::absolute(choice.run).lexically_normal();
  const std::filesystem::path file = path.has_filename() ? path : path.parent_path(), folder = file.parent_path();
  return folder.filename() == "checkpoints" ? folder.parent_path().string() : file.string();
}

// Returns the name of each model's run: the last part of its path, or as many parts as tell the runs apart.
std::vector<std::string> run_names(const std::vector<ModelChoice>& choices) {
  const std::vector<std::string> runs = transformed(choices, run_of);
  const std::set<std::string> different(runs.begin(), runs.end());
  const std::vector<std::string> names = serve::names_of({different.begin(), different.end()});
  return transformed(runs, [&](const std::string& run) {
    return names[static_cast<std::size_t>(std::distance(different.begin(), different.find(run)))];
  });
}

}  // namespace

int run(const Inspect& command, const EngineRequest& request) {
  catch_interrupts();
  require_replaceable_file(command.out, "inspect: --out", "<!doctype html>", "is not a page");
  const std::vector<ModelChoice> choices = choices_of(command.models);
  inspector::InspectLimits limits;
  limits.bytes = kMaxPageBytes / std::ssize(choices);
  std::vector<std::int32_t> ids;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  const std::vector<std::string> names = run_names(choices);
  std::vector<inspector::InspectorView> views;
  for (ModelChoice choice : choices) {
    std::string& name = choice.run;
    while (name.size() > 1 && name.ends_with('/')) {
      name.pop_back();
    }
    const store::OpenedModel opened = open_model({.choice = choice, .options = {}}, request);
    inspector::require_inspectable(opened.config().model);
    const std::shared_ptr<const tokenizers::Tokenizer> own = analyse::tokenizer_of(opened);
    if (tokenizer == nullptr) {
      tokenizer = own;
      ids = text_to_inspect(command, opened, *tokenizer);
    } else if (tokenizer->name() != own->name()) {
      user_error("inspect: {} and {} have different tokenizers, {} and {}; models on one page must share a tokenizer",
                 printable(choices.front().run), printable(name), tokenizer->name(), own->name());
    }
    views.push_back({names[views.size()], opened.checkpoint.step,
                     inspector::inspect_text(*opened.model, ids, opened.context, limits),
                     opened.config().data.classes});
  }
  const std::string title = "Inside " + views.front().run +
                            (views.front().run == views.back().run ? std::string() : " and " + views.back().run);
  const std::string html = inspector::render_inspector({title, ids, *tokenizer, std::move(views)});
  write_text_file(command.out, html);
  request.output.text(
      fmt::format("{}: {:.1f} MB, {} tokens\n", command.out, static_cast<double>(html.size()) * 1e-6, ids.size()));
  request.output.document({{"page", command.out}, {"bytes", html.size()}, {"tokens", ids.size()}});
  return 0;
}

int run(const Analyse& command, const EngineRequest& request) {
  catch_interrupts();
  analyse::check_output_folder(command.out, command.force);
  if (std::error_code unknown; std::filesystem::exists(command.text, unknown)) {
    log_warning("analyse: --text: analyses the name {} itself; --file {} reads the file", printable(command.text),
                printable(command.text));
  }
  const analyse::AnalyseRequest job{.what = command.what,
                                    .text = {.text = command.text, .data = command.file},
                                    .command = request.command_line,
                                    .samples = command.samples,
                                    .key = command.key};
  const std::vector<ModelChoice> choices = choices_of(command.models);
  for (const ModelChoice& choice : choices) {
    const std::filesystem::path file = store::find_checkpoint(choice.run);
    const store::Checkpoint checkpoint = store::read_checkpoint(file, store::Check::shapes);
    analyse::require_analyses(job, checkpoint.config.model, file.string());
  }
  std::vector<analyse::ModelFindings> all;
  for (const ModelChoice& choice : choices) {
    const store::OpenedModel opened = open_model({.choice = choice, .options = {}}, request);
    all.push_back(analyse::analyse(opened, job));
    request.output.text(fmt::format("{}\n", opened.name));
    for (const auto& [kind, findings] : all.back().analyses) {
      request.output.text(fmt::format("  {:<12} {}\n", kind->name, findings.summary));
    }
  }
  const Json document = analyse::write_analyses(all, job, command.out);
  request.output.text(document.at("report").get<std::string>() + "\n");
  request.output.document(document);
  return 0;
}

}  // namespace headroom::cli
