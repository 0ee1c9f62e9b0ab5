#include "program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <system_error>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::cli {

namespace {

constexpr int kDone = 0, kFailed = 1, kUserError = 2;

int report_error(std::string_view what, int status) {
  const std::string line = fmt::format("headroom: {}\n", one_line(what));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return status;
}

// Returns the command line, quoted for a shell.
std::string quoted(int argc, const char* const* argv) {
  std::string line = "headroom";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool plain = !argument.empty() && argument.find_first_of(" \t\n\"'\\$`*?[](){}<>|&;#~") == argument.npos;
    line += plain ? " " : " '";
    for (const char c : argument) {
      line += c == '\'' ? "'\\''" : std::string(1, c);
    }
    line += plain ? "" : "'";
  }
  return line;
}

}  // namespace

Program::Program() : app_("Transformers that need fewer attention heads: train, measure, compare.", "headroom") {
  app_.set_help_flag("-h,--help", "print this help and exit");  // inherited by the commands
  app_.set_version_flag("--version", "headroom " HEADROOM_VERSION, "print the version and exit");
  app_.formatter(help_formatter(help_width()));  // set first: inherited by the commands
  app_.require_subcommand(1);
  app_.footer(
      "CONFIG is a TOML file or the name of a shipped recipe (headroom recipes lists them).\n"
      "Example:\n  headroom train demo/switchhead_h2 --out runs/first\n"
      "`headroom help COMMAND` shows the options of a command.");
  add_shared(app_);
  add_model_commands(*this);
  add_comparing_commands(*this);
  add_inspecting_commands(*this);
  add_cost_commands(*this);
  add_data_commands(*this);
  add_checking_commands(*this);
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
  command.add_flag("-q,--quiet", quiet_, "print only errors");
  command.add_flag("-v,--verbose", verbose_, "print more, such as which operators ran fused, and why others did not");
}

void Program::add_threads(CLI::App& command) {
  add_value(command, "--threads", threads_, "N", whole_number(1, 4096),
            "number of threads (default: all physical cores)");
}

void add_run(CLI::App& command, std::string& run) {
  add_text(command, "RUN", run, "", "run folder or checkpoint file")->required();
}

void add_runs(CLI::App& command, std::vector<std::string>& runs, const std::string& about) {
  command.add_option("RUN", runs, about)->required()->check(not_empty())->type_name("");
}

void add_out(CLI::App& command, std::string& out, const std::string& what, const std::string& type) {
  command.add_option("--out", out, what)->required()->check(not_empty())->type_name(type);
}

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "device to compute on; auto: a GPU if torch finds one, else the CPU")
      ->capture_default_str()
      ->type_name("auto|cpu|cuda|cuda:N");
}

void add_precision(CLI::App& command, std::string& precision) {
  CLI::Option* const option =
      command.add_option("--precision", precision, "number format of the matrix multiplications");
  if (precision.empty()) {
    option->description(option->get_description() + " (default: the run's)");
  } else {
    option->capture_default_str();
  }
  option->check(one_of({"auto", "fp32", "bf16"}))->type_name("auto|fp32|bf16");
}

void add_set(CLI::App& command, std::vector<std::string>& set) {
  add_repeated(command, "--set", set, "KEY=VALUE", "change a key of the config, as in train.steps=500; repeatable");
}

CLI::Option* add_repeated(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                          const std::string& type, const std::string& about) {
  return command.add_option(name, values, about)->allow_extra_args(false)->type_name(type);
}

CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                      const std::string& type, const std::string& about) {
  return add_text(command, name, values, type, about)->delimiter(',')->allow_extra_args(false);
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
    return value && *value >= low && *value <= high
               ? ""
               : fmt::format("must be a number from {} to {}, got {}", low, high, printable(text));
  };
  return CLI::Validator(refused, "");
}

CLI::Validator one_of(std::vector<std::string> names) {
  const auto refused = [names = std::move(names)](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) {
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

CLI::Option* add_choice(CLI::App& command, const std::string& name, std::string& value,
                        const std::vector<std::string>& names, const std::string& about) {
  return add_value(command, name, value, fmt::format("{}", fmt::join(names, "|")), one_of(names), about);
}

namespace {

// Returns the arguments in the order that CLI11 parses, last first; "help COMMAND" and "version" as the options that
// do the same.
std::vector<std::string> arguments_of(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  } else if (words == std::vector<std::string>{"version"}) {
    words.front() = "--version";
  }
  for (std::string& word : words) {  // CLI11 splits "[a,b]" into a list
    std::error_code unknown;         // for example, a name that is too long
    if (word.starts_with('[') && word.ends_with(']') && std::filesystem::exists(word, unknown)) {
      word.insert(0, "./");
    }
  }
  std::ranges::reverse(words);
  return words;
}

// Returns the word of "help COMMAND" that names no command; empty if all do.
std::string not_a_command(const CLI::App& root, int argc, const char* const* argv) {
  if (argc < 2 || argv[1] != std::string_view("help")) {
    return "";
  }
  int at = 2;
  for (const CLI::App* app = &root; at < argc && !app->get_subcommands().empty(); ++at) {
    app = app->get_subcommands().back();
  }
  return at < argc && argv[at][0] != '-' ? argv[at] : "";
}

}  // namespace

int Program::dispatch(int argc, const char* const* argv) {
  if (argc == 2 && argv[1] == std::string_view("__complete")) {  // for ./run.sh install
    Output(false).text(completion_script(app_));
    return kDone;
  }
  try {
    app_.parse(arguments_of(argc, argv));
  } catch (const CLI::CallForHelp& help) {
    if (const std::string word = not_a_command(app_, argc, argv); !word.empty()) {
      return report_error(app_.remaining(true).empty() ? fmt::format("help: unexpected argument {}", printable(word))
                                                       : describe_user_error(app_, help),
                          kUserError);
    }
    Output(false).text(app_.help());
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    Output(false).text(std::string(version.what()) + "\n");
    return kDone;
  } catch (const CLI::ParseError& error) {
    return report_error(describe_user_error(app_, error), kUserError);
  }
  set_log_level(quiet_ ? LogLevel::quiet : verbose_ ? LogLevel::debug : LogLevel::info);
  command_line_ = quoted(argc, argv);
  return runs_.at(&innermost(app_))();
}

namespace {

// Settings that libgomp and oneDNN read when they are loaded.
// Waiting threads spin for some 30 microseconds, which bridges the gap between two parallel loops, and then sleep. By
// default libgomp spins for milliseconds, and takes cores from other programs and even from the thread it waits for.
// oneDNN caches up to 1,024 compiled matrix multiplications of 100 kB and more. Where batches differ in length the
// cache would fill with shapes that never recur; 128 entries suffice for one step.
// simd_limit() holds for torch, oneDNN and MKL as well, also in the programs that benchmarks start.
// On Intel CPUs without AVX-512, MKL multiplies (engine/ops/linear/dense_matmul.cc). MKL_CBWR makes its sums
// independent of the number of threads, at no measured cost.
void set_library_defaults() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("GOMP_SPINCOUNT", "2000", 0);
  }
  if (std::getenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY") == nullptr) {
    setenv("DNNL_PRIMITIVE_CACHE_CAPACITY", "128", 0);
  }
  if (const bool avx2 = simd_limit() == "avx2"; !simd_limit().empty()) {
    setenv("ATEN_CPU_CAPABILITY", avx2 ? "avx2" : "default", 0);
    setenv("ONEDNN_MAX_CPU_ISA", avx2 ? "AVX2" : "SSE41", 0);
    setenv("MKL_ENABLE_INSTRUCTIONS", avx2 ? "AVX2" : "SSE4_2", 0);
  }
  if (cpu_vendor() == "Intel" && cpu_has("avx2") && !cpu_has("avx512f")) {
    setenv("MKL_CBWR", "AVX2,STRICT", 0);
  }
}

// If a standard stream is closed, the next opened file gets its number and would receive its data. Opens /dev/null with
// the opposite access mode instead, so that reading and writing fail as on a closed stream.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) {
      open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

}  // namespace

int Program::run_engine(const EngineRequest& request) {
  set_library_defaults();
  // Loading torch fills 50 MB of the heap. Pages of 2 MB, which tcmalloc keeps, save 13,000 page faults.
  constexpr std::size_t kPage = 2 << 20, kHeap = 64 << 20;
  void* const heap = std::aligned_alloc(kPage, kHeap);
  madvise(heap, kHeap, MADV_HUGEPAGE);
  std::free(heap);
  // Found through the program's run path. Never unloaded, because torch does not support that. Lazy: of torch's 43,000
  // functions, a command calls few.
  void* library = dlopen("libheadroom_engine.so", RTLD_LAZY);
  void* symbol = library == nullptr ? nullptr : dlsym(library, kEngineEntry);
  if (symbol == nullptr) {
    fail("libheadroom_engine.so: cannot be loaded, {}", dlerror());
  }
  return reinterpret_cast<EngineEntry>(symbol)(request);
}

int Program::run(int argc, const char* const* argv) {
  occupy_standard_streams();
  // A reader that closes the pipe (`headroom ... | head`) must not kill a training run: writes fail with EPIPE instead.
  std::signal(SIGPIPE, SIG_IGN);
  report_truncated_files();
  std::signal(SIGXFSZ, SIG_IGN);  // past `ulimit -f` a write fails with a message, as on a full disk
  try {
    return dispatch(argc, argv);
  } catch (const NoReaderError&) {
    return kDone;
  } catch (const EndedError& ended) {
    return ended.status;
  } catch (const UserError& error) {
    return report_error(error.what(), kUserError);
  } catch (const InterruptedError& error) {
    return report_error(error.what(), interrupt_status());
  } catch (const std::filesystem::filesystem_error& error) {
    const bool of_user = error.code() == std::errc::filename_too_long || error.code() == std::errc::permission_denied ||
                         error.code() == std::errc::too_many_symbolic_link_levels;
    return report_error(fmt::format("{}: {}", error.path1().string(), error.code().message()),
                        of_user ? kUserError : kFailed);
  } catch (const std::bad_alloc&) {
    return report_error("out of memory", kFailed);
  } catch (const std::exception& error) {
    return report_error(error.what(), kFailed);
  }
}

int run(int argc, char** argv) {
  return Program().run(argc, argv);
}

}  // namespace headroom::cli
