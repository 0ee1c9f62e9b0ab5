// The layout of --help.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <sstream>

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

}  // namespace headroom::cli
