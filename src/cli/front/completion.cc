// Shell completion of commands, options and their values, files and recipes.
#include <algorithm>
#include <utility>

#include "command_tree.h"
#include "headroom/core/error.h"
#include "training/cost/papers/papers.h"

namespace headroom::cli {

namespace {

constexpr std::string_view kBash = R"(# bash completion of headroom
_headroom() {
  local line file
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ $line == :files ]]; then
      while IFS= read -r file; do
        COMPREPLY+=("$file")
      done < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
    else
      COMPREPLY+=("${line%%$'\t'*}")
    fi
  done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ ${COMPREPLY[0]} == *= ]]; then
    compopt +o filenames -o nospace 2>/dev/null
  fi
}
complete -o filenames -F _headroom headroom
)";

constexpr std::string_view kZsh = R"(#compdef headroom
# zsh completion of headroom
_headroom() {
  local line name about files
  local -a candidates suffix
  for line in "${(@f)$(${~words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    name="${line%%$'\t'*}" about="${line#*$'\t'}"
    if [[ $line == :files ]]; then
      files=yes
    elif [[ -n $name ]]; then
      [[ $about == $name ]] && about=
      candidates+=("${name//:/\\:}${about:+:$about}")
      [[ $name == *= ]] && suffix=(-S '')
    fi
  done
  _describe headroom candidates "${suffix[@]}"
  [[ -n $files ]] && _files
}
_headroom "$@"
)";

constexpr std::string_view kFish = R"(# fish completion of headroom
function __headroom_complete
  set -l words (commandline -opc)
  set -l last (commandline -ct)
  for line in ($words[1] __complete $words[2..] "$last" 2>/dev/null)
    if test "$line" = :files
      __fish_complete_path "$last"
    else
      printf '%s\n' $line
    end
  end
end
complete -c headroom -f -a '(__headroom_complete)'
)";

// Shortens a help text to one line.
std::string brief(const std::string& about) {
  constexpr std::size_t kLongest = 70;
  std::string text = about.substr(0, std::min(about.find_first_of(";\n"), about.size()));
  while (text.size() > kLongest) {
    text.resize(text.rfind(' '));
  }
  return text;
}

const CommandText* command_at(const std::vector<CommandText>& commands, const std::vector<std::string>& path) {
  const auto found = std::ranges::find(commands, path, &CommandText::path);
  return found == commands.end() ? nullptr : &*found;
}

bool takes_recipe(const OptionText& option) {
  return option.value == "CONFIG" ||
         (option.positional && (option.names[0] == "CONFIG" || option.names[0] == "FILTER"));
}

// Returns the lines for the value of an option or a positional argument.
std::vector<std::string> values_of(const OptionText& option, const std::vector<std::string>& keys) {
  std::vector<std::string> lines = option.choices;
  if (lines.empty() && option.value.starts_with("KEY=")) {
    for (const std::string& key : keys) {
      lines.push_back(key + "=");
    }
    return lines;
  }
  if (lines.empty() && takes_recipe(option)) {
    for (const cost::Recipe& recipe : cost::list_recipes()) {
      lines.push_back(recipe.name);
    }
  }
  if (option.positional || option.choices.empty()) {
    lines.emplace_back(":files");
  }
  return lines;
}

std::vector<std::string> option_lines(const CommandText& command) {
  std::vector<std::string> lines;
  for (const OptionText& option : command.options) {
    for (std::size_t i = 0; !option.positional && i < option.names.size(); ++i) {
      lines.push_back(option.names[i] + "\t" + brief(option.about));
    }
  }
  return lines;
}

std::vector<std::string> subcommand_lines(const CommandText& command, const std::vector<CommandText>& commands) {
  std::vector<std::string> lines;
  for (const std::string& name : command.inner) {
    std::vector<std::string> path = command.path;
    path.push_back(name);
    lines.push_back(name + "\t" + brief(command_at(commands, path)->about));
  }
  return lines;
}

std::vector<std::string> argument_lines(const CommandText& command, const std::vector<std::string>& keys) {
  for (const OptionText& option : command.options) {
    if (option.positional && (takes_recipe(option) || !option.choices.empty())) {
      return values_of(option, keys);
    }
  }
  return {":files"};
}

}  // namespace

std::string completions(const std::vector<CommandText>& commands, const std::vector<std::string>& keys,
                        const std::vector<std::string>& words) {
  const CommandText* command = &commands.front();
  const std::string before = words.size() > 1 ? words[words.size() - 2] : "", last = words.empty() ? "" : words.back();
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    std::vector<std::string> path = command->path;
    path.push_back(words[i]);
    if (const CommandText* const found = command_at(commands, path)) {
      command = found;
    }
  }
  const auto option = std::ranges::find_if(command->options, [&](const OptionText& one) {
    return !one.positional && !one.value.empty() && std::ranges::find(one.names, before) != one.names.end();
  });
  const std::vector<std::string> lines = option != command->options.end() ? values_of(*option, keys)
                                         : last.starts_with('-')          ? option_lines(*command)
                                         : !command->inner.empty()        ? subcommand_lines(*command, commands)
                                                                          : argument_lines(*command, keys);
  std::string text;
  for (const std::string& line : lines) {
    text += line == ":files" || line.starts_with(last) ? line + "\n" : "";
  }
  return text;
}

std::string completion_script(std::string_view shell) {
  for (const auto& [name, script] : {std::pair("bash", kBash), std::pair("zsh", kZsh), std::pair("fish", kFish)}) {
    if (shell == name) {
      return std::string(script);
    }
  }
  user_error("completion: SHELL: must be bash, zsh or fish, got {}", shell);
}

}  // namespace headroom::cli
