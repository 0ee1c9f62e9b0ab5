#include "distributed.h"

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
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "training/parallel/gloo_group.h"
#include "training/train/loop/train.h"

namespace headroom::cli {
namespace {

constexpr int kFailed = 1, kMisused = 2;
constexpr std::size_t kLongest = 4096;  // bytes of a message
// torchrun ends the others when the first has ended, and takes the first end that it sees for the reason.
constexpr auto kTorchrunReacts = std::chrono::seconds(2);

// torch describes its errors in several paragraphs; the first line says what happened.
std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

// Commands that several processes know how to share.
template <class Command>
constexpr bool kShared =
    std::is_same_v<Command, Train> || std::is_same_v<Command, Evaluate> || std::is_same_v<Command, Compare> ||
    std::is_same_v<Command, Sweep> || std::is_same_v<Command, Bench>;  // workers of a benchmark

struct End {
  int status = kFailed;
  std::string message;
  bool own = false;    // of this process alone, as far as it knows
  bool final = false;  // would come again
};

End end_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const UserError& error) {
    return {.status = kMisused, .message = error.what(), .final = true};
  } catch (const InterruptedError& error) {
    return {.status = kInterrupted, .message = error.what()};
  } catch (const train::DivergedError& error) {
    return {.message = error.what(), .final = true};
  } catch (const parallel::PeerError& error) {
    return {.message = error.what()};
  } catch (const SharedError& error) {
    return {.message = error.what()};
  } catch (const c10::Error& error) {
    return {.message = fmt::format("torch: {}", first_line(error.what_without_backtrace())), .own = true};
  } catch (const std::bad_alloc&) {
    return {.message = "out of memory", .own = true};
  } catch (const std::exception& error) {
    return {.message = error.what(), .own = true};
  }
}

// What torchrun shows of a failed process.
void leave_for_torchrun(const std::string& message) {
  const char* const file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (file == nullptr) {
    return;
  }
  try {
    const Json when = {{"timestamp", std::to_string(std::time(nullptr))}};
    write_text_file(file, to_json_line({{"message", {{"message", message}, {"extraInfo", when}}}}));
  } catch (const Error&) {  // it is a courtesy
  }
}

[[noreturn]] void end_together(const End& end, parallel::GlooGroup& world) {
  const std::string message = end.own ? fmt::format("{}: {}", world.name_of(world.rank()), end.message) : end.message;
  if (world.announce(message, end.final)) {
    std::fprintf(stderr, "headroom: %s\n", printable(message, kLongest).c_str());
    leave_for_torchrun(message);
  } else {
    std::this_thread::sleep_for(kTorchrunReacts);
  }
  std::fflush(nullptr);
  std::_Exit(end.status);  // threads may wait for processes that say nothing any more
}

}  // namespace

int together(const EngineRequest& request, const std::function<int()>& run) {
  try {
    parallel::init_process_group();
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
    if (!std::visit([](const auto& command) { return kShared<std::decay_t<decltype(command)>>; }, request.command)) {
      user_error("torchrun: only train, evaluate, compare and sweep run in several processes");
    }
    status = run();
    world.gather("");  // nobody leaves while another one still needs it
  } catch (...) {
    end_together(end_of(std::current_exception()), world);
  }
  std::fflush(nullptr);
  return status;
}

}  // namespace headroom::cli
