// The command line: commands with their options, what they do, and how mistakes are reported.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"

namespace headroom::cli {

class Program {
 public:
  Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Exit status; everything that goes wrong is reported on stderr in one line.
  int run(int argc, const char* const* argv);

  // A command below `parent`, with an example for its help; `run` is called when the command line names it.
  CLI::App& add(CLI::App& parent, const std::string& name, const std::string& about, const std::string& example,
                std::function<int()> run);
  // A command that only gathers others.
  CLI::App& add_group(const std::string& name, const std::string& about, const std::string& example);
  CLI::App& root() { return app_; }

  Output output() const { return Output(json_); }
  // Loads the engine and hands it the command, with the options that all of its commands share.
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
void add_train(Program& program);
void add_model_commands(Program& program);       // evaluate, generate
void add_comparing_commands(Program& program);   // compare, sweep, advise, report, demo
void add_inspecting_commands(Program& program);  // analyse, inspect
void add_serving_commands(Program& program);     // serve
void add_cost_commands(Program& program);        // cost, match, recipes, and the next
void add_papers(Program& program);
void add_data_commands(Program& program);        // tokenizer, data
void add_checking_commands(Program& program);    // golden, bench, doctor
void add_checkpoint_commands(Program& program);  // checkpoint, import
void add_help_commands(Program& program);        // completion, man

// RUN, which is required: a run folder or a checkpoint file.
void add_run(CLI::App& command, std::string& run);
// RUN, one or more.
void add_runs(CLI::App& command, std::vector<std::string>& runs, const std::string& about);
// --out, which is required.
void add_out(CLI::App& command, std::string& out, const std::string& what, const std::string& type);
// --device, as train.device.
void add_device(CLI::App& command, std::string& device);
// --precision of a trained model's products; empty: that of the run.
void add_precision(CLI::App& command, std::string& precision);
// "--set key=value", any number of times.
void add_set(CLI::App& command, std::vector<std::string>& set);
// Takes digits that make a whole number from `low` to `high`; the message names the interval and what was typed.
CLI::Validator whole_number(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max());
// Takes a number from `low` to `high`.
CLI::Validator number(double low, double high);
// Takes one of `names`.
CLI::Validator one_of(std::vector<std::string> names);
// Takes any text but an empty one.
CLI::Validator not_empty();

// The command that the command line named.
const CLI::App& innermost(const CLI::App& root);

// What is wrong with the command line, in one line: "train: unknown option --resum; did you mean --resume?"
std::string describe_user_error(const CLI::App& root, const CLI::ParseError& error);

// One line for stderr: line ends become blanks, and what a terminal would act on is spelled out (core/printable.h).
std::string one_line(std::string_view text);

}  // namespace headroom::cli
