// The layout of --help, and the commands completion and man.
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "command_tree.h"
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

// Escapes text for roff.
std::string plain(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) {
      out += "\\&";
    }
    begins = c == '\n';
    out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  }
  return out;
}

std::string name_of(const OptionText& option) {
  if (option.positional) {
    return fmt::format("\\fI{}\\fR", plain(option.names[0]));
  }
  std::string text;
  for (const std::string& name : option.names) {
    text += fmt::format("{}\\fB{}\\fR", text.empty() ? "" : ", ", plain(name));
  }
  return option.value.empty() ? text : fmt::format("{} \\fI{}\\fR", text, plain(option.value));
}

std::string options_of(const CommandText& command) {
  std::string text;
  for (const OptionText& option : command.options) {
    text += fmt::format(".TP\n{}\n{}\n", name_of(option), plain(option.about));
  }
  return text;
}

// Keeps the lines unchanged, because footers contain examples.
std::string verbatim(const std::string& footer) {
  return footer.empty() ? "" : fmt::format(".PP\n.nf\n{}\n.fi\n", plain(footer));
}

// Returns headroom(1) in the man macros of roff.
std::string manual_page(const std::vector<CommandText>& commands, std::string_view version) {
  const CommandText& program = commands.front();
  std::string text = fmt::format(
      ".TH HEADROOM 1 \"\" \"headroom {}\" \"User Commands\"\n"
      ".SH NAME\nheadroom \\- {}\n"
      ".SH SYNOPSIS\n\\fBheadroom\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]...\n"
      ".SH OPTIONS\n{}{}"
      ".SH COMMANDS\n",
      plain(version), plain(program.about), options_of(program), verbatim(program.footer));
  for (const CommandText& command : commands) {
    if (!command.path.empty() && command.inner.empty()) {
      text += fmt::format(".SS headroom {}\n{}\n{}{}", plain(fmt::format("{}", fmt::join(command.path, " "))),
                          plain(command.about), options_of(command), verbatim(command.footer));
    }
  }
  return text +
         ".SH EXIT STATUS\n0: done. 1: failed. 2: user error: a wrong option, config or file. 130: interrupted by\n"
         "Ctrl-C (143: by SIGTERM); training writes a checkpoint first.\n"
         ".SH ENVIRONMENT\n"
         ".TP\n\\fBHEADROOM_CACHE\\fR\nfolder of prepared data (~/.cache/headroom)\n"
         ".TP\n\\fBHEADROOM_HOME\\fR\nfolder that holds recipes/\n";
}

}  // namespace

void add_help_commands(Program& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App& completion =
      program.add(program.root(), "completion", "Print a script for shell completion of commands and options.",
                  "headroom completion bash > ~/.local/share/bash-completion/completions/headroom", [&program, shell] {
                    const std::string script = completion_script(*shell);
                    program.output().text(script);
                    program.output().document({{"shell", *shell}, {"script", script}});
                    return 0;
                  });
  completion.add_option("SHELL", *shell, "shell that the script is for")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}))
      ->type_name("bash|zsh|fish");
  program.add(program.root(), "man", "Print the manual page.", "headroom man | man -l -", [&program] {
    const std::string page = manual_page(command_tree(program.root()), HEADROOM_VERSION);
    program.output().text(page);
    program.output().document({{"page", page}});
    return 0;
  });
}

}  // namespace headroom::cli
