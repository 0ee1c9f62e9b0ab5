// The layout of --help, and shell completion of commands, options and their values, recipes, config keys and files.
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "program.h"

namespace headroom::cli {

namespace {

constexpr std::size_t kElsewhere = 80, kNarrowest = 56;
constexpr std::size_t kNames = 34;  // width in columns of an option's names and value

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t columns) : columns_(std::max(columns, kNarrowest)) { column_width(kNames); }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description());
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(CLI::Formatter::make_description(app), columns_, 0);
  }

  std::string make_footer(const CLI::App* app) const override {
    return wrapped(CLI::Formatter::make_footer(app), columns_, 0);
  }

 private:
  std::string entry(const std::string& names, const std::string& about) const {
    std::string line = "  " + names;
    line += line.size() < kNames ? std::string(kNames - line.size(), ' ') : "\n" + std::string(kNames, ' ');
    return line + wrapped(about, columns_, kNames) + "\n";
  }

  std::size_t columns_;
};

std::string wrapped_line(const std::string& line, std::size_t columns, std::size_t indent) {
  std::istringstream words(line);
  std::string text;
  std::size_t at = indent;
  for (std::string word; words >> word;) {
    if (!text.empty() && at + 1 + word.size() > columns) {
      text += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (!text.empty()) {
      text += ' ';
      ++at;
    }
    text += word;
    at += word.size();
  }
  return text;
}

}  // namespace

std::size_t help_width() {
  struct winsize size {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kElsewhere;
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::istringstream lines{std::string(text)};
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    all += all.empty() ? "" : "\n" + std::string(indent, ' ');
    all += line.starts_with(' ') ? line : wrapped_line(line, columns, indent);
  }
  return all + (text.ends_with('\n') ? "\n" : "");
}

std::shared_ptr<CLI::FormatterBase> help_formatter(std::size_t columns) {
  return std::make_shared<HelpFormatter>(columns);
}

namespace {

// Placeholders, in order: all command paths as patterns, recipes, keys, values of options, words after commands.
constexpr std::string_view kScript = R"(# Completion of headroom, written by ./run.sh install.
_headroom() {{
  local path= words= files=-f i IFS=$'\n'
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
    {}) path+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  local recipes="{}"
  local keys="{}"
  case "$path ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{}  *)
    case "$path" in
{}    esac
    ;;
  esac
  COMPREPLY=($(compgen $files -W "${{words// /$'\n'}}" -- "${{COMP_WORDS[COMP_CWORD]}}"))
  [[ ${{COMPREPLY[0]}} != *= ]] || compopt +o filenames -o nospace 2>/dev/null
}}
complete -o filenames -F _headroom headroom
)";

struct Cases {
  std::vector<std::string> paths;
  std::string values, words;
};

// Returns the shell's words for the value of an option or argument; empty if the value is any text or file.
std::string values_of(const CLI::Option& option) {
  const std::string type = option.nonpositional() ? option.get_type_name() : option.get_name();
  if (type.starts_with("KEY=")) {
    return "$keys";
  }
  if (type == "CONFIG" || type == "BASE" || type == "CHANGE" || type == "FILTER") {
    return "$recipes";
  }
  std::string choices;
  std::istringstream names(type.find('|') == std::string::npos ? "" : type);
  for (std::string name; std::getline(names, name, '|');) {
    const bool placeholder = std::ranges::any_of(name, [](char c) { return c >= 'A' && c <= 'Z'; });  // "cuda:N"
    choices += placeholder ? "" : name + " ";
  }
  return choices;
}

void collect(const CLI::App& app, const std::string& path, Cases& cases) {
  std::string words;
  const std::vector<const CLI::App*> inner = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : inner) {
    const std::string below = path + " " + command->get_name();
    words += command->get_name() + " ";
    cases.paths.push_back("\"" + below + "\"");
    collect(*command, below, cases);
  }
  for (const CLI::Option* option : app.get_options()) {
    const std::string values = values_of(*option);
    if (option->get_group().empty()) {  // hidden
      continue;
    }
    if (!option->nonpositional()) {
      words += values + " ";
      continue;
    }
    for (const std::string& name : option->get_lnames()) {
      words += "--" + name + " ";
      if (!values.empty()) {
        cases.values += fmt::format("  \"{} --{}\") words=\"{}\"{} ;;\n", path, name, values,
                                    values == "$recipes" ? "" : " files=");
      }
    }
  }
  cases.words += fmt::format("    \"{}\") words=\"{}\"{} ;;\n", path, words, inner.empty() ? "" : " files=");
}

}  // namespace

std::string completion_script(const CLI::App& root) {
  Cases cases;
  collect(root, "", cases);
  const std::vector<std::string> keys =
      transformed(config::flatten(config::Config()), [](const auto& entry) { return entry.first + "="; });
  return fmt::format(kScript, fmt::join(cases.paths, " | "), fmt::join(config::recipe_names(), " "),
                     fmt::join(keys, " "), cases.values, cases.words);
}

}  // namespace headroom::cli
