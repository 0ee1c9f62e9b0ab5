// The command line: commands, options and error reporting.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace headroom::cli {

class Program {
 public:
  Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Runs the command and returns the exit status. Errors are reported on stderr, in one line.
  int run(int argc, const char* const* argv);

  // Adds a command below `parent`, with an example for its help. `run` is called if the command line names the command.
  CLI::App& add(CLI::App& parent, const std::string& name, const std::string& about, const std::string& example,
                std::function<int()> run);
  // Adds a command that runs in the engine with the returned options.
  template <class Options>
  std::pair<CLI::App&, std::shared_ptr<Options>> add_engine(CLI::App& parent, const std::string& name,
                                                            const std::string& about, const std::string& example) {
    auto options = std::make_shared<Options>();
    return {add(parent, name, about, example, [this, options] { return engine(*options); }), options};
  }
  // Adds a command that has only subcommands.
  CLI::App& add_group(const std::string& name, const std::string& about, const std::string& example);
  CLI::App& root() { return app_; }

  Output output() const { return Output(json_); }
  // Loads the engine and runs the command there, with the options shared by all of its commands.
  template <class Command>
  int engine(const Command& command) const {
    return run_engine({.command = command, .threads = threads_, .command_line = command_line_, .output = output()});
  }
  void add_threads(CLI::App& command);

 private:
  int dispatch(int argc, const char* const* argv);
  void add_shared(CLI::App& command);
  static int run_engine(const EngineRequest& request);

  CLI::App app_;
  std::map<const CLI::App*, std::function<int()>> runs_;
  bool json_ = false, quiet_ = false, verbose_ = false;
  std::int64_t threads_ = 0;
  std::string command_line_;
};

// The commands, by theme.
void add_model_commands(Program& program);       // train, evaluate, generate, serve
void add_comparing_commands(Program& program);   // compare, sweep, try, report, runs, demo
void add_inspecting_commands(Program& program);  // analyse, inspect, checkpoint, import, convert
void add_cost_commands(Program& program);        // cost, recipes
void add_data_commands(Program& program);        // tokenizer, data
void add_checking_commands(Program& program);    // bench, doctor

// Arguments and options shared by several commands.
// RUN, required: a run folder or a checkpoint file.
void add_run(CLI::App& command, std::string& run);
// RUN, one or more.
void add_runs(CLI::App& command, std::vector<std::string>& runs, const std::string& about);
// --out, required.
void add_out(CLI::App& command, std::string& out, const std::string& what, const std::string& type);
// --device, as in train.device.
void add_device(CLI::App& command, std::string& device);
// --precision; default: the run's.
void add_precision(CLI::App& command, std::string& precision);
// --set key=value, repeatable.
void add_set(CLI::App& command, std::vector<std::string>& set);
// Validators. Their messages name the expected value and the typed one.
// An integer from `low` to `high`.
CLI::Validator whole_number(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max());
// A number from `low` to `high`.
CLI::Validator number(double low, double high);
// One of `names`.
CLI::Validator one_of(std::vector<std::string> names);
// Any text that is not empty.
CLI::Validator not_empty();

// Adds an option or argument with a value. `type` names the value in the help, which shows the default of a number or
// text unless `about` does.
template <class T>
CLI::Option* add_value(CLI::App& command, const std::string& name, T& value, const std::string& type,
                       const CLI::Validator& check, const std::string& about) {
  CLI::Option* const option = command.add_option(name, value, about)->check(check)->type_name(type);
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    if (about.find("(default") == std::string::npos) {
      option->capture_default_str();
    }
  }
  return option;
}
template <class T>
CLI::Option* add_text(CLI::App& command, const std::string& name, T& value, const std::string& type,
                      const std::string& about) {
  return add_value(command, name, value, type, not_empty(), about);
}
// Adds an option that may be given several times, with a value each time.
CLI::Option* add_repeated(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                          const std::string& type, const std::string& about);
// Adds an option whose value is a list separated by commas.
CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                      const std::string& type, const std::string& about);
CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value,
                        const std::vector<std::string>& names, const std::string& about);

// The layout of --help: descriptions in a column, wrapped at the width of the terminal.
// Returns the width in columns of the terminal on standard output; 80 if it is not a terminal.
std::size_t help_width();

// Wraps `text` at `columns`. All lines except the first start with `indent` spaces; the first is assumed to follow as
// many characters. Keeps lines that start with a space unchanged. Does not split a word longer than a line.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

std::shared_ptr<CLI::FormatterBase> help_formatter(std::size_t columns);

// Returns the command that the command line names.
const CLI::App& innermost(const CLI::App& root);

// Returns the script that completes command lines in bash, and in zsh through bashcompinit.
std::string completion_script(const CLI::App& root);

// Describes an invalid command line in one sentence: "train: unknown option --resume; did you mean --resume?"
std::string describe_user_error(const CLI::App& root, const CLI::ParseError& error);

// Returns text as one line for stderr: line ends become spaces, and control characters are escaped
// (core/text/format.h).
std::string one_line(std::string_view text);

}  // namespace headroom::cli
