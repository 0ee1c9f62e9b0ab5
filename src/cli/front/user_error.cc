// Describes an invalid command line in one sentence.
#include <algorithm>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "program.h"

namespace headroom::cli {

namespace {

// Returns "train", "tokenizer encode"; empty for the program.
std::string path_of(const CLI::App* app) {
  std::string path;
  for (; app->get_parent() != nullptr; app = app->get_parent()) {
    path = app->get_name() + (path.empty() ? "" : " ") + path;
  }
  return path;
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
  return transformed(commands, [&](const CLI::App* command) { return command->get_name(); });
}

std::vector<std::string> options_of(const CLI::App* command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

std::string lower_first(std::string text) {
  if (text.size() > 1 && text[1] >= 'a' && text[1] <= 'z') {
    text[0] = lower_case(text[0]);
  }
  return text;
}

std::string suggestion(std::string_view typed, const std::vector<std::string>& known) {
  const std::string name = nearest(typed, known);
  return name.empty() ? "" : "; did you mean " + name + "?";
}

// Returns this program's name for a command of other programs; empty if there is none.
std::string known_elsewhere(std::string_view typed) {
  constexpr std::pair<std::string_view, std::string_view> kCommands[] = {
      {"eval", "headroom evaluate RUN"},
      {"perplexity", "headroom evaluate RUN"},
      {"test", "headroom evaluate RUN"},
      {"resume", "headroom train CONFIG --out RUN --resume"},
      {"finetune", "headroom train CONFIG --set train.start_from=CHECKPOINT"},
      {"sample", "headroom generate RUN --prompt TEXT"},
      {"chat", "headroom generate RUN --prompt TEXT"},
      {"export", "headroom checkpoint export RUN --out FILE"},
      {"benchmark", "headroom bench NAME"},
      {"list", "headroom recipes lists the configs"}};
  for (const auto& [name, command] : kCommands) {
    if (name == typed) {
      return "; use " + std::string(command);
    }
  }
  return {};
}

// For "--steps 500" or "train.steps=500", suggests how to change a config key.
std::string set_suggestion(const CLI::App& command, std::string typed) {
  if (command.get_option_no_throw("--set") == nullptr) {
    return {};
  }
  typed.erase(0, typed.find_first_not_of('-'));
  typed.resize(std::min(typed.size(), typed.find('=')));
  std::ranges::replace(typed, '-', '_');
  if (typed.ends_with("epochs")) {
    return "; training is counted in steps of train.batch_size sequences: --set train.steps=VALUE";
  }
  const std::string key = config::suggest_key(typed);
  return key.empty() ? "" : "; to change a key of the config: --set " + key + "=VALUE";
}

// Returns a message for a --set value without "=", as in "--set train.steps 500"; empty if there is none.
std::string missing_value(const CLI::App& command) {
  const CLI::Option* const set = command.get_option_no_throw("--set");
  const std::vector<std::string> typed = set == nullptr ? std::vector<std::string>() : set->results();
  const auto word =
      std::ranges::find_if(typed, [](const std::string& text) { return text.find('=') == std::string::npos; });
  return word == typed.end() ? "" : "--set " + printable(*word) + ": must be KEY=VALUE, without a space";
}

std::string missing_option(const CLI::App& command) {
  const std::vector<const CLI::Option*> options = command.get_options();
  const auto missing = std::ranges::find_if(
      options, [](const CLI::Option* option) { return option->get_required() && option->count() == 0; });
  return missing == options.end() ? "" : "; " + (*missing)->get_name() + " is required";
}

std::string unknown_option(const CLI::App& command, const std::string& option) {
  if (option == "--checkpoint" && command.get_option_no_throw("RUN") != nullptr) {
    return "unknown option --checkpoint; give its file instead of the run: RUN/checkpoints/step_N.safetensors";
  }
  if (option == "--out" && command.get_name() == "generate") {
    return "unknown option --out; the text goes to stdout: use > FILE";
  }
  const std::string close = suggestion(option, options_of(&command));
  return "unknown option " + printable(option) + (close.empty() ? set_suggestion(command, option) : close);
}

std::string unexpected_argument(const CLI::App& command, const std::string& word) {
  if (std::string mistake = missing_value(command); !mistake.empty()) {
    return mistake;
  }
  const bool key = word.find('=') != std::string::npos;
  return "unexpected argument " + printable(word) + (key ? set_suggestion(command, word) : missing_option(command));
}

std::string describe(const CLI::App& command, const CLI::App& root, const CLI::ParseError& error) {
  const auto commands = command.get_subcommands([](const CLI::App*) { return true; });
  const std::vector<std::string> rest = root.remaining(true);
  if (!rest.empty() && rest.front().starts_with("-")) {
    return unknown_option(command, rest.front().substr(0, rest.front().find('=')));
  }
  if (!rest.empty() && !commands.empty()) {
    const std::string elsewhere = known_elsewhere(rest.front());
    return "unknown command " + printable(rest.front()) +
           (elsewhere.empty() ? suggestion(rest.front(), names_of(commands)) : elsewhere);
  }
  if (!rest.empty()) {
    return unexpected_argument(command, rest.front());
  }
  if (!commands.empty() && command.get_subcommands().empty()) {
    return "a command is required";
  }
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() == 1 && option->count() > 1) {
      return option->get_name() + " is given " + std::to_string(option->count()) + " times, but takes one value";
    }
  }
  return printable(lower_first(error.what()), 400);
}

}  // namespace

const CLI::App& innermost(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().back();
  }
  return *app;
}

std::string describe_user_error(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& command = innermost(root);
  const std::string path = path_of(&command);
  return (path.empty() ? "" : path + ": ") + describe(command, root, error) + " (headroom " + path +
         (path.empty() ? "" : " ") + "--help)";
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kLongestLine = 4000;
  std::string line;
  for (const char c : text) {
    if (c != '\n' && c != '\r') {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') {
    line.pop_back();
  }
  return printable(line, kLongestLine);
}

}  // namespace headroom::cli
