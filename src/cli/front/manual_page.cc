// headroom(1) in man's macros.
#include <fmt/format.h>

#include "completion.h"

namespace headroom::cli {

namespace {

// Text that roff shows as it is: its escapes and the characters that would begin a request.
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

// A help text's footer keeps its lines: it holds examples.
std::string as_it_stands(const std::string& footer) {
  return footer.empty() ? "" : fmt::format(".PP\n.nf\n{}\n.fi\n", plain(footer));
}

}  // namespace

std::string manual_page(const std::vector<CommandText>& commands, std::string_view version) {
  const CommandText& program = commands.front();
  std::string text = fmt::format(
      ".TH HEADROOM 1 \"\" \"headroom {}\" \"User Commands\"\n"
      ".SH NAME\nheadroom \\- {}\n"
      ".SH SYNOPSIS\n\\fBheadroom\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]...\n"
      ".SH OPTIONS\n{}{}"
      ".SH COMMANDS\n",
      plain(version), plain(program.about), options_of(program), as_it_stands(program.footer));
  for (const CommandText& command : commands) {
    if (!command.path.empty() && command.inner.empty()) {
      text += fmt::format(".SS headroom {}\n{}\n{}{}", plain(joined(command.path)), plain(command.about),
                          options_of(command), as_it_stands(command.footer));
    }
  }
  return text +
         ".SH EXIT STATUS\n0: done. 1: failed. 2: misuse, a wrong option, config or file. 130: interrupted; a training "
         "has\nwritten a checkpoint then.\n"
         ".SH ENVIRONMENT\n"
         ".TP\n\\fBHEADROOM_CACHE\\fR\nfolder of prepared data (~/.cache/headroom)\n"
         ".TP\n\\fBHEADROOM_HOME\\fR\nfolder that holds recipes/\n";
}

}  // namespace headroom::cli
