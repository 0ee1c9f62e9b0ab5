#include "program.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "help_format.h"

namespace headroom::cli {

namespace {

constexpr int kDone = 0, kFailed = 1, kMisused = 2, kInterrupted = 130;

int complain(std::string_view what, int status) {
  // Where nobody hears it, the status has to say it alone.
  const std::string line = fmt::format("headroom: {}\n", one_line(what));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return status;
}

// The arguments as a shell would take them.
std::string quoted(int argc, const char* const* argv) {
  std::string line = "headroom";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool plain = !argument.empty() && argument.find_first_of(" \t\n\"'\\$`*?[](){}<>|&;#~") == argument.npos;
    line += ' ';
    if (plain) {
      line += argument;
      continue;
    }
    line += '\'';
    for (const char c : argument) {
      line += c == '\'' ? "'\\''" : std::string(1, c);
    }
    line += '\'';
  }
  return line;
}

}  // namespace

Program::Program() : app_("Transformers that need fewer attention heads: train, measure, compare.", "headroom") {
  app_.set_help_flag("-h,--help", "explain and exit");  // commands inherit it
  app_.set_version_flag("--version", "headroom " HEADROOM_VERSION, "say which version this is and exit");
  app_.formatter(help_formatter(help_width()));  // before commands, which inherit it
  app_.require_subcommand(1);
  app_.footer(
      "CONFIG is a TOML file or the name of a shipped recipe (headroom recipes lists them).\n"
      "Example:\n  headroom train demo/switchhead_h2 --out runs/first\n"
      "`headroom COMMAND --help` explains a command.");
  add_shared(app_);
  add_train(*this);
  add_model_commands(*this);
  add_comparing_commands(*this);
  add_serving_commands(*this);
  add_inspecting_commands(*this);
  add_cost_commands(*this);
  add_data_commands(*this);
  add_checking_commands(*this);
  add_checkpoint_commands(*this);
  add_help_commands(*this);
}

CLI::App& Program::add(CLI::App& parent, const std::string& name, const std::string& about, const std::string& example,
                       std::function<int()> run) {
  CLI::App& command = *parent.add_subcommand(name, about);
  command.footer("Example:\n  " + example);
  add_shared(command);
  runs_[&command] = std::move(run);
  return command;
}

CLI::App& Program::add_group(const std::string& name, const std::string& about, const std::string& example) {
  CLI::App& group = *app_.add_subcommand(name, about);
  group.footer("Example:\n  " + example);
  group.require_subcommand(1);
  return group;
}

void Program::add_shared(CLI::App& command) {
  command.add_flag("--json", json_, "print the result as one JSON document");
  command.add_flag("-q,--quiet", quiet_, "no progress, no remarks; only errors");
  command.add_flag("-v,--verbose", verbose_, "more remarks: which operators were fused, and why not");
}

void Program::add_threads(CLI::App& command) {
  command.add_option("--threads", threads_, "threads to compute with (default: all physical cores)")
      ->check(whole_number(1, 4096))
      ->type_name("N");
}

void add_run(CLI::App& command, std::string& run) {
  command.add_option("RUN", run, "run folder or checkpoint file")->required()->check(not_empty())->type_name("");
}

void add_runs(CLI::App& command, std::vector<std::string>& runs, const std::string& about) {
  command.add_option("RUN", runs, about)->required()->check(not_empty())->type_name("");
}

void add_out(CLI::App& command, std::string& out, const std::string& what, const std::string& type) {
  command.add_option("--out", out, what)->required()->check(not_empty())->type_name(type);
}

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "where to compute; auto: a GPU where torch has one, else the CPU")
      ->capture_default_str()
      ->type_name("auto|cpu|cuda|cuda:N");
}

void add_precision(CLI::App& command, std::string& precision) {
  CLI::Option* const option = command.add_option("--precision", precision, "number format of the products");
  if (precision.empty()) {
    option->description(option->get_description() + "; without it that of the run");
  } else {
    option->capture_default_str();
  }
  option->check(one_of({"auto", "fp32", "bf16"}))->type_name("auto|fp32|bf16");
}

void add_set(CLI::App& command, std::vector<std::string>& set) {
  command.add_option("--set", set, "change a key of the config: train.steps=500 (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const auto refused = [low, high](const std::string& text) -> std::string {
    const auto value = as_number<std::int64_t>(text);
    if (value && *value >= low && *value <= high) {
      return {};
    }
    const bool bounded = high < std::numeric_limits<std::int64_t>::max();
    return fmt::format("must be an integer {}, got {}",
                       bounded ? fmt::format("from {} to {}", low, high) : fmt::format("of at least {}", low),
                       printable(text));
  };
  return CLI::Validator(refused, "");
}

CLI::Validator number(double low, double high) {
  const auto refused = [low, high](const std::string& text) -> std::string {
    const auto value = as_number(text);
    if (value && *value >= low && *value <= high) {
      return {};
    }
    return fmt::format("must be a number from {} to {}, got {}", low, high, printable(text));
  };
  return CLI::Validator(refused, "");
}

CLI::Validator one_of(std::vector<std::string> names) {
  const auto refused = [names = std::move(names)](const std::string& text) -> std::string {
    if (std::find(names.begin(), names.end(), text) != names.end()) {
      return {};
    }
    return fmt::format("must be {}{}, got {}", names.size() > 1 ? "one of " : "", fmt::join(names, ", "),
                       printable(text));
  };
  return CLI::Validator(refused, "");
}

CLI::Validator not_empty() {
  return CLI::Validator([](const std::string& text) { return std::string(text.empty() ? "must not be empty" : ""); },
                        "");
}

int Program::dispatch(int argc, const char* const* argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    Output(false).text(app_.help());
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    Output(false).text(std::string(version.what()) + "\n");
    return kDone;
  } catch (const CLI::ParseError& error) {
    return complain(describe_user_error(app_, error), kMisused);
  }
  set_log_level(quiet_ ? LogLevel::quiet : verbose_ ? LogLevel::debug : LogLevel::info);
  command_line_ = quoted(argc, argv);
  return runs_.at(&innermost(app_))();
}

namespace {

// A standard stream that is closed would be the number of the next file that is opened, which would then receive what
// is meant for the stream. Reading from the first and writing to the others fails as if they were closed.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) {
      open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

}  // namespace

int Program::run(int argc, const char* const* argv) {
  occupy_standard_streams();
  // A reader that goes away (`headroom ... | head`) must not end a training: writing then fails with EPIPE.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // past `ulimit -f` a write fails with a message, as on a full disk
  try {
    return dispatch(argc, argv);
  } catch (const NoReaderError&) {
    return kDone;
  } catch (const EndedError& ended) {
    return ended.status;
  } catch (const UserError& error) {
    return complain(error.what(), kMisused);
  } catch (const InterruptedError& error) {
    return complain(error.what(), kInterrupted);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailed);
  } catch (const std::exception& error) {
    return complain(error.what(), kFailed);
  }
}

}  // namespace headroom::cli
