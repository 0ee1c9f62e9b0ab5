// Runs a command on several ranks. An error is printed once and stops all ranks.
#include <c10/util/Exception.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <thread>
#include <type_traits>

#include "engine.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "training/parallel/gloo_group.h"
#include "training/train/loop/train.h"

namespace headroom::cli {
namespace {

constexpr int kFailed = 1, kUserError = 2;
constexpr std::size_t kLongest = 4096;  // maximum bytes of a printed message
// torchrun stops the other ranks when one has exited, and reports the first exit that it sees. The rank that prints the
// error must therefore exit first.
constexpr auto kExitDelay = std::chrono::seconds(2);

// The first line of torch's messages contains the error; several paragraphs of description follow.
std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

struct End {
  int status = kFailed;
  std::string message;
  bool local = false;  // as far as known, an error of this rank only
  bool final = false;  // would recur, so torchrun must not retry
};

End end_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const UserError& error) {
    return {.status = kUserError, .message = error.what(), .final = true};
  } catch (const InterruptedError& error) {
    return {.status = interrupt_status(), .message = error.what()};
  } catch (const train::DivergedError& error) {
    return {.message = error.what(), .final = true};
  } catch (const parallel::PeerError& error) {
    return {.message = error.what()};
  } catch (const SharedError& error) {
    return {.message = error.what()};
  } catch (const c10::Error& error) {
    return {.message = fmt::format("torch: {}", first_line(error.what_without_backtrace())), .local = true};
  } catch (const std::bad_alloc&) {
    return {.message = "out of memory", .local = true};
  } catch (const std::exception& error) {
    return {.message = error.what(), .local = true};
  }
}

// torchrun prints the content of this file as the reason for a failure.
void write_torchrun_error(const std::string& message) {
  const char* const file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (file == nullptr) {
    return;
  }
  try {
    const Json when = {{"timestamp", std::to_string(std::time(nullptr))}};
    write_text_file(file, to_json_line({{"message", {{"message", message}, {"extraInfo", when}}}}));
  } catch (const Error&) {  // the message has been printed already
  }
}

[[noreturn]] void end_all_ranks(const End& end, parallel::GlooGroup& world) {
  const std::string message = end.local ? fmt::format("{}: {}", world.name_of(world.rank()), end.message) : end.message;
  if (world.announce(message, end.final)) {
    std::fprintf(stderr, "headroom: %s\n", printable(message, kLongest).c_str());
    write_torchrun_error(message);
  } else {
    std::this_thread::sleep_for(kExitDelay);
  }
  std::fflush(nullptr);
  std::_Exit(end.status);  // other threads may wait for ranks that have exited
}

}  // namespace

int run_distributed(const EngineRequest& request, const std::function<int()>& run) {
  const bool on_ranks = std::visit(
      [](const auto& command) {
        using Command = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Command, Bench>) {
          return !command.serve.empty();  // a worker of a benchmark
        }
        return std::is_same_v<Command, Train> || std::is_same_v<Command, Evaluate> ||
               std::is_same_v<Command, Compare> || std::is_same_v<Command, Sweep>;
      },
      request.command);
  try {
    if (on_ranks) {  // other commands ignore a launcher's variables
      parallel::init_process_group();
    }
  } catch (const c10::Error& error) {
    fail("torch: {}", first_line(error.what_without_backtrace()));
  }
  parallel::GlooGroup& world = parallel::default_group();
  if (world.size() == 1) {
    try {
      return run();
    } catch (const c10::Error& error) {
      fail("torch: {}", first_line(error.what_without_backtrace()));
    }
  }
  if (log_level() == LogLevel::debug) {
    set_log_prefix(fmt::format("rank {}: ", world.rank()));
  } else if (!world.leads()) {
    set_log_level(LogLevel::quiet);
  }
  int status = 0;
  try {
    status = run();
    world.gather("");  // no rank exits while another still needs it
  } catch (...) {
    end_all_ranks(end_of(std::current_exception()), world);
  }
  std::fflush(nullptr);
  return status;
}

}  // namespace headroom::cli
