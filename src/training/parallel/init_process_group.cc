// The start: from torchrun's variables to connections.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "connection.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "gloo_group.h"

namespace headroom::parallel {
namespace {

constexpr auto kConnecting = std::chrono::minutes(5);

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int number(const char* name, int low, int high, std::optional<int> absent = {}) {
  const std::optional<std::string> text = variable(name);
  if (!text && absent) {
    return *absent;
  }
  const std::string given = text.value_or("");
  const auto value = as_number<int>(given);
  if (!value || *value < low || *value > high) {
    user_error("{}: must be an integer from {} to {}, as torchrun sets it, got \"{}\"", name, low, high, given);
  }
  return *value;
}

// With torchrun gone there is nobody to end these processes.
void end_with_parent() {
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) {
    ::raise(SIGTERM);
  }
}

void refuse_repetition(c10d::Store& store) {
  if (store.check({"headroom/final"})) {
    const std::string message = store.get_to_str("headroom/final");
    log_debug("not started again, as it would end in the same way: {}", message);
    throw EndedError(1);
  }
}

}  // namespace

GlooGroup& default_group() {
  static GlooGroup one;
  return one;
}

void init_process_group() {
  constexpr int kMostProcesses = 65536;
  if (!variable("RANK") || !variable("WORLD_SIZE")) {
    return;
  }
  GlooGroup& w = default_group();
  const int size = number("WORLD_SIZE", 1, kMostProcesses);
  const int rank = number("RANK", 0, size - 1);
  w.restarts_ = number("TORCHELASTIC_RESTART_COUNT", 0, 1 << 30, 0);
  share_cores(number("LOCAL_WORLD_SIZE", 1, size, size));
  end_with_parent();
  if (size == 1) {
    return;
  }
  const std::string host = variable("MASTER_ADDR").value_or("localhost");
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(number("MASTER_PORT", 1, 65535));
  options.isServer = false;
  options.timeout = kConnecting;
  auto connection = std::make_unique<Connection>();
  try {
    connection->unprefixed = c10::make_intrusive<c10d::TCPStore>(host, options);
    refuse_repetition(*connection->unprefixed);
    connection->store =
        c10::make_intrusive<c10d::PrefixStore>(fmt::format("headroom/{}", w.restarts_), connection->unprefixed);
    connection->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        connection->store, rank, size, c10d::ProcessGroupGloo::Options::create_default(kConnecting));
  } catch (const EndedError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    fail("rank {} of {}: cannot meet the other processes through {}:{}: {}", rank, size, host, options.port,
         what.substr(0, what.find('\n')));
  }
  w.connection_ = std::move(connection);
  w.rank_ = rank;
  w.size_ = size;
  w.use_long_timeout();
  w.meet();
}

}  // namespace headroom::parallel
