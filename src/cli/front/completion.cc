// Scripts for the shell completion of commands, options and their values, files and recipes.
#include "command_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "headroom/core/error.h"

namespace headroom::cli {

namespace {

constexpr std::string_view kRecipes =
    "headroom recipes --json 2>/dev/null | tr '{' '\\n' | sed -n 's/^\"name\":\"\\([^\"]*\\)\".*/\\1/p'";

// Quotes text in single quotes for a shell.
std::string in_single_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

// Shortens a help text to one line.
std::string brief(const std::string& about) {
  constexpr std::size_t kLongest = 70;
  std::string text = about.substr(0, std::min(about.find_first_of(";\n"), about.size()));
  while (text.size() > kLongest) {
    text.resize(text.rfind(' '));
  }
  return text;
}

bool takes_recipe(const OptionText& option) {
  return option.value == "CONFIG" ||
         (option.positional && (option.names[0] == "CONFIG" || option.names[0] == "FILTER"));
}

bool takes_recipes(const CommandText& command) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [](const OptionText& option) { return option.positional && takes_recipe(option); });
}

// Returns the values that a positional argument of the command can have, if they are listed.
std::vector<std::string> argument_names(const CommandText& command) {
  for (const OptionText& option : command.options) {
    if (option.positional && !option.choices.empty()) {
      return option.choices;
    }
  }
  return {};
}

bool takes_key(const OptionText& option) {
  return option.value.starts_with("KEY=");
}

std::vector<std::string> all_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) {
    if (!option.positional) {
      names.insert(names.end(), option.names.begin(), option.names.end());
    }
  }
  return names;
}

// Returns two case statements of bash: one on the word before the current one, one on the command.
std::string for_bash(const std::vector<CommandText>& commands, const std::vector<std::string>& keys) {
  std::string known, words, values;
  for (const CommandText& command : commands) {
    const std::string path = joined(command.path);
    if (!command.path.empty()) {
      known += fmt::format("      {}) command={} ;;\n", in_single_quotes(path), in_single_quotes(path));
    }
    words += fmt::format("    {})\n      options={}\n      inner={}\n      names={}\n      recipes={}\n      ;;\n",
                         in_single_quotes(path), in_single_quotes(joined(all_names(command))),
                         in_single_quotes(joined(command.inner)), in_single_quotes(joined(argument_names(command))),
                         takes_recipes(command) ? "yes" : "");
    for (const OptionText& option : command.options) {
      if (option.positional || option.value.empty()) {
        continue;
      }
      for (const std::string& name : option.names) {
        values += fmt::format(
            "    {})\n      {}\n      return ;;\n", in_single_quotes(path + " " + name),
            !option.choices.empty()
                ? fmt::format("COMPREPLY=($(compgen -W {} -- \"$word\"))", in_single_quotes(joined(option.choices)))
            : takes_key(option)    ? std::string("_headroom_keys")
            : takes_recipe(option) ? fmt::format("COMPREPLY=($(compgen -f -W \"$({})\" -- \"$word\"))", kRecipes)
                                   : "COMPREPLY=($(compgen -f -- \"$word\"))");
      }
    }
  }
  return fmt::format(
      R"script(# bash completion of headroom
_headroom_keys() {{
  compopt +o filenames -o nospace 2>/dev/null
  COMPREPLY=($(compgen -S = -W {} -- "$word"))
}}
_headroom() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command='' i options inner names recipes
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{command:+$command }}${{COMP_WORDS[i]}}" in
{}    esac
  done
  case "$command $before" in
{}  esac
  case "$command" in
{}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ -n $inner ]]; then
    COMPREPLY=($(compgen -W "$inner" -- "$word"))
  elif [[ -n $recipes ]]; then
    COMPREPLY=($(compgen -f -W "$({})" -- "$word"))
  else
    COMPREPLY=($(compgen -f -W "$names" -- "$word"))
  fi
}}
complete -o filenames -F _headroom headroom
)script",
      in_single_quotes(joined(keys)), known, values, words, kRecipes);
}

// Escapes text for a specification of zsh's _arguments, inside single quotes.
std::string for_zsh_spec(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionText& option) {
  if (!option.choices.empty()) {
    return "(" + joined(option.choices) + ")";
  }
  return takes_key(option) ? "_headroom_keys" : takes_recipe(option) ? "_headroom_config" : "_files";
}

std::string zsh_arguments(const CommandText& command) {
  std::string text = "_arguments -s";
  for (const OptionText& option : command.options) {
    if (option.positional) {
      text += fmt::format(" \\\n    '{}:{}:{}'", option.repeats ? "*" : "", for_zsh_spec(option.names[0]),
                          zsh_action(option));
      continue;
    }
    for (const std::string& name : option.names) {
      text += fmt::format(
          " \\\n    '{}{}[{}]{}'", option.repeats ? "*" : "", name, for_zsh_spec(brief(option.about)),
          option.value.empty() ? "" : fmt::format(":{}:{}", for_zsh_spec(option.value), zsh_action(option)));
    }
  }
  return text;
}

const CommandText& command_at(const std::vector<CommandText>& commands, const std::vector<std::string>& path) {
  const auto found = std::find_if(commands.begin(), commands.end(), [&](const auto& c) { return c.path == path; });
  if (found == commands.end()) {
    fail("completion: no command {}", joined(path));
  }
  return *found;
}

std::string zsh_function(const std::vector<std::string>& path) {
  return path.empty() ? "_headroom" : "_headroom_" + joined(path, "_");
}

std::string for_zsh(const std::vector<CommandText>& commands, const std::vector<std::string>& keys) {
  std::string text = fmt::format(R"script(#compdef headroom
# zsh completion of headroom
_headroom_config() {{
  local -a recipes
  recipes=(${{(f)"$({})"}})
  _alternative "recipes:recipe:compadd -a recipes" "files:file:_files"
}}
_headroom_keys() {{
  compadd -S = -- {}
}}
)script",
                                 kRecipes, joined(keys));
  for (const CommandText& command : commands) {
    std::string body;
    if (command.inner.empty()) {
      body = "  " + zsh_arguments(command) + "\n";
    } else {
      std::string list, cases;
      for (const std::string& name : command.inner) {
        std::vector<std::string> below = command.path;
        below.push_back(name);
        list += fmt::format(" \\\n      '{}:{}'", name, for_zsh_spec(brief(command_at(commands, below).about)));
        cases += fmt::format("    {}) {} ;;\n", name, zsh_function(below));
      }
      body = fmt::format(
          "  if ((CURRENT == 2)); then\n    local -a commands\n    commands=({})\n    _describe command commands\n"
          "    return\n  fi\n  shift words\n  ((CURRENT--))\n  case $words[1] in\n{}  esac\n",
          list, cases);
    }
    text += fmt::format("{}() {{\n{}}}\n", zsh_function(command.path), body);
  }
  return text + "_headroom \"$@\"\n";
}

// Returns the fish condition that the words of a command have been typed.
std::string fish_condition(const std::vector<std::string>& path, const std::vector<std::string>& groups) {
  std::string text;
  for (const std::string& word : path) {
    text += (text.empty() ? "" : "; and ") + fmt::format("__fish_seen_subcommand_from {}", word);
  }
  // `tokenizer train` must not match `train`.
  const bool alone = path.size() == 1 && std::find(groups.begin(), groups.end(), path[0]) == groups.end();
  return alone ? text + "; and not __fish_seen_subcommand_from " + joined(groups) : text;
}

std::string for_fish(const std::vector<CommandText>& commands, const std::vector<std::string>& keys) {
  std::string text =
      fmt::format("# fish completion of headroom\nfunction __headroom_keys\n  printf '%s=\\n' {}\nend\n", joined(keys));
  std::vector<std::string> groups;
  for (const CommandText& command : commands) {
    if (!command.inner.empty() && !command.path.empty()) {
      groups.push_back(command.path[0]);
    }
  }
  for (const CommandText& command : commands) {
    std::string here = fish_condition(command.path, groups);
    if (!command.inner.empty()) {
      const std::string none = "not __fish_seen_subcommand_from " + joined(command.inner);
      const std::string yet = here.empty() ? none : here + "; and " + none;
      for (const std::string& name : command.inner) {
        std::vector<std::string> below = command.path;
        below.push_back(name);
        text += fmt::format("complete -c headroom -f -n {} -a {} -d {}\n", in_single_quotes(yet), name,
                            in_single_quotes(brief(command_at(commands, below).about)));
      }
      here = yet;
    }
    if (takes_recipes(command)) {
      text += fmt::format("complete -c headroom -n {} -a {}\n", in_single_quotes(here),
                          in_single_quotes(fmt::format("({})", kRecipes)));
    }
    if (const std::vector<std::string> names = argument_names(command); !names.empty()) {
      text +=
          fmt::format("complete -c headroom -n {} -a {}\n", in_single_quotes(here), in_single_quotes(joined(names)));
    }
    for (const OptionText& option : command.options) {
      if (option.positional) {
        continue;
      }
      std::string line = "complete -c headroom -n " + in_single_quotes(here);
      for (const std::string& name : option.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.choices.empty()) {
        line += " -x -a " + in_single_quotes(joined(option.choices));
      } else if (takes_key(option)) {
        line += " -x -a '(__headroom_keys)'";
      } else if (takes_recipe(option)) {
        line += " -r -a " + in_single_quotes(fmt::format("({})", kRecipes));
      } else if (!option.value.empty()) {
        line += " -r";
      }
      text += line + " -d " + in_single_quotes(brief(option.about)) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const std::vector<CommandText>& commands, const std::vector<std::string>& keys,
                              std::string_view shell) {
  if (shell == "bash") {
    return for_bash(commands, keys);
  }
  if (shell == "zsh") {
    return for_zsh(commands, keys);
  }
  if (shell == "fish") {
    return for_fish(commands, keys);
  }
  user_error("completion: SHELL: must be bash, zsh or fish, got {}", shell);
}

}  // namespace headroom::cli
