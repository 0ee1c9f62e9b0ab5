// The commands completion and man.
#include <fmt/ranges.h>

#include <memory>

#include "command_tree.h"
#include "program.h"

namespace headroom::cli {

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
