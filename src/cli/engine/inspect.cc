#include <filesystem>
#include <system_error>

#include "engine.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "output_file.h"
#include "run_model.h"
#include "tools/analyse/reader.h"
#include "tools/inspector/inspector_page.h"
#include "training/tasks/classes/classification.h"
#include "training/tasks/language/evaluation_text.h"

namespace headroom::cli {

namespace {

constexpr std::int64_t kMostOfAPage = 14'000'000;  // bytes of packed numbers: 20 MB with base64 and all else
constexpr std::int64_t kLongestInspected = 16 << 20;

std::vector<std::int32_t> text_to_inspect(const Inspect& command, const store::OpenedModel& opened,
                                          const tokenizers::Tokenizer& tokenizer) {
  const bool classifies = opened.config().model.has_classes();
  if (!command.text.empty()) {
    std::error_code unknown;  // such as a name that is too long
    if (!std::filesystem::exists(command.text, unknown)) {
      user_error("inspect: --text: must name a file, and there is no {}", printable(command.text));
    }
    std::string text = read_text_file(command.text, kLongestInspected);
    if (classifies) {  // its texts are lines
      text.erase(text.find_last_not_of("\r\n") + 1);
    }
    std::vector<std::int32_t> ids;
    try {
      tokenizer.encode(text, ids);
    } catch (const UserError& error) {
      user_error("inspect: {}: {}", printable(command.text), error.what());
    }
    if (ids.empty()) {
      user_error("inspect: {}: has no text", printable(command.text));
    }
    return ids;
  }
  const tasks::EvaluationRequest request{
      .config = opened.config(), .tokenizer = opened.checkpoint.tokenizer, .files = {}};
  if (classifies) {
    const data::LabelledSequences set = tasks::evaluation_sequences(request);
    const auto first = set.first.at(0);
    return {first.begin(), first.end()};
  }
  const auto file = tasks::open_evaluation_text(request);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(file->size(), opened.config().model.context_length)));
  file->copy(0, std::ssize(ids), ids.data());
  return ids;
}

// A run's checkpoints have one name: that of its folder.
std::string run_of(const std::string& path) {
  const std::filesystem::path checkpoints = std::filesystem::path(path).parent_path();
  return checkpoints.filename() == "checkpoints" ? checkpoints.parent_path().filename().string()
                                                 : std::filesystem::path(path).filename().string();
}

}  // namespace

int run(const Inspect& command, const EngineRequest& request) {
  catch_interrupts();
  require_room_for_like(command.out, "inspect: --out", "<!doctype html>", "is no page");
  const std::vector<ModelChoice> choices = choices_of(command.models);
  inspect::InspectLimits limits;
  limits.bytes = kMostOfAPage / std::ssize(choices);
  std::vector<std::int32_t> ids;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::vector<inspect::InspectedView> views;
  for (ModelChoice choice : choices) {
    std::string& name = choice.run;
    while (name.size() > 1 && name.ends_with('/')) {
      name.pop_back();
    }
    const store::OpenedModel opened = open_model({.choice = choice, .options = {}}, request);
    inspect::require_inspectable(opened.config().model);
    const std::shared_ptr<const tokenizers::Tokenizer> own = inspect::tokenizer_of(opened);
    if (tokenizer == nullptr) {
      tokenizer = own;
      ids = text_to_inspect(command, opened, *tokenizer);
    } else if (tokenizer->name() != own->name()) {
      user_error("inspect: {} and {} have different tokenizers ({} and {}): what they read cannot be put side by side",
                 printable(choices.front().run), printable(name), tokenizer->name(), own->name());
    }
    views.push_back(
        {run_of(name), opened.checkpoint.step, inspect::inspect_text(*opened.model, ids, opened.context, limits)});
  }
  const std::string title = "Inside " + views.front().run +
                            (views.front().run == views.back().run ? std::string() : " and " + views.back().run);
  const std::string html = inspect::render_inspector({title, ids, *tokenizer, std::move(views)});
  write_text_file(command.out, html);
  request.output.text(
      fmt::format("{}: {:.1f} MB, {} tokens\n", command.out, static_cast<double>(html.size()) * 1e-6, ids.size()));
  request.output.document({{"page", command.out}, {"bytes", html.size()}, {"tokens", ids.size()}});
  return 0;
}

}  // namespace headroom::cli
