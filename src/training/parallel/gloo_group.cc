#include "gloo_group.h"

#include <c10/util/Logging.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "launcher.h"

namespace headroom::parallel {
namespace {

// Tags of gather(): the length of a text, and the text.
constexpr std::uint32_t kLengthTag = (std::uint32_t{1} << 31) - 2, kTextTag = kLengthTag + 1;
constexpr auto kLongTimeout = std::chrono::hours(12);
constexpr std::chrono::milliseconds kConnectTimeout = std::chrono::seconds(20), kAgentTimeout = std::chrono::minutes(5);
constexpr int kNamedRanks = 8;
constexpr std::chrono::milliseconds kStoreTimeout = std::chrono::seconds(5);
constexpr auto kReactionTime = std::chrono::milliseconds(1500);  // for other ranks to record what they wait for

at::Tensor bytes_of(const void* data, std::size_t size) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(size)}, at::kByte);
  if (size > 0) {
    std::memcpy(bytes.mutable_data_ptr(), data, size);
  }
  return bytes;
}

std::string first_line(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find('\n')));
}

// Returns the first line of a c10d or Gloo error, without its source location.
std::string reason_of(const std::exception& error) {
  const std::string text = first_line(error);
  const std::size_t location_end = text.rfind("] ");
  return location_end == std::string::npos ? text : text.substr(location_end + 2);
}

// Returns the result of `query`, or nullopt if it takes longer than `limit`: c10d waits minutes for an unreachable
// store, and for ever on a port that another program serves. After a timeout, its thread is abandoned, because the
// process is about to exit; so `query` must own everything that it uses.
template <class Query>
auto within(std::chrono::milliseconds limit, Query query) -> std::optional<std::invoke_result_t<Query>> {
  std::packaged_task<std::invoke_result_t<Query>()> task(std::move(query));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result.wait_for(limit) == std::future_status::ready ? std::optional(result.get()) : std::nullopt;
}

// Returns within(kStoreTimeout, query), or nullopt if `query` throws.
template <class Query>
auto with_store_timeout(Query query) -> std::optional<std::invoke_result_t<Query>> {
  try {
    return within(kStoreTimeout, std::move(query));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Makes this process exit with its parent, torchrun, because nothing else would stop the ranks of a killed torchrun.
void exit_with_parent() {
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) {
    ::raise(SIGTERM);
  }
}

void refuse_restart_after_final_failure(c10d::Store& store) {
  if (store.check({"headroom/final"})) {
    const std::string message = store.get_to_str("headroom/final");
    log_debug("not restarted, because the run would fail in the same way: {}", message);
    throw EndedError(1);
  }
}

}  // namespace

class GlooGroup::Connection {
 public:
  c10::intrusive_ptr<c10d::Store> unprefixed;  // shared by all restarts of the same torchrun
  c10::intrusive_ptr<c10d::Store> store;       // of this start or restart
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::atomic<std::chrono::milliseconds> timeout{kLongTimeout};
  std::mutex mutex;  // guards calls of `gloo`, and `traffic`
  Traffic traffic;
};

GlooGroup::GlooGroup() = default;
GlooGroup::~GlooGroup() = default;

// `begin` returns the transfer's c10d::Work.
template <class Begin>
Transfer GlooGroup::start(int peer, const Begin& begin) {
  try {
    const std::lock_guard lock(connection_->mutex);
    return Transfer([this, peer, work = begin(*connection_)] {
      try {
        work->wait(timeout());
      } catch (const std::exception& error) {
        report_failed_peer(peer, reason_of(error));
      }
    });
  } catch (const std::exception& error) {
    report_failed_peer(peer, reason_of(error));
  }
}

Transfer GlooGroup::send(const at::Tensor& tensor, int to, std::uint32_t tag) {
  return start(to, [&](Connection& connection) {
    std::vector<at::Tensor> one = {tensor.detach()};
    connection.traffic.sent += tag < kLengthTag ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
    return connection.gloo->send(one, to, static_cast<int>(tag));
  });
}

Transfer GlooGroup::receive(at::Tensor tensor, int from, std::uint32_t tag) {
  return start(from, [&](Connection& connection) {
    std::vector<at::Tensor> one = {tensor.detach()};
    connection.traffic.received += tag < kLengthTag ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
    return connection.gloo->recv(one, from, static_cast<int>(tag));
  });
}

GlooGroup::Traffic GlooGroup::traffic() const {
  if (connection_ == nullptr) {
    return {};
  }
  const std::lock_guard lock(connection_->mutex);
  return connection_->traffic;
}

std::vector<std::string> GlooGroup::gather(const std::string& mine) {
  std::vector<std::string> all(static_cast<std::size_t>(size_));
  all[static_cast<std::size_t>(rank_)] = mine;
  const std::int64_t length = std::ssize(mine);
  const at::Tensor header = bytes_of(&length, sizeof length), body = bytes_of(mine.data(), mine.size());
  std::vector<Transfer> sent;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) {
      sent.push_back(send(header, peer, kLengthTag));
      if (length > 0) {
        sent.push_back(send(body, peer, kTextTag));
      }
    }
  }
  // All receives start at once, so that every rank notices an exited rank even while it waits for a slow one.
  std::vector<std::pair<at::Tensor, Transfer>> headers(all.size());
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) {
      auto& [tensor, transfer] = headers[static_cast<std::size_t>(peer)];
      tensor = at::empty({static_cast<std::int64_t>(sizeof length)}, at::kByte);
      transfer = receive(tensor, peer, kLengthTag);
    }
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) {
      continue;
    }
    auto& [tensor, transfer] = headers[static_cast<std::size_t>(peer)];
    transfer.wait();
    std::int64_t theirs = 0;
    std::memcpy(&theirs, tensor.const_data_ptr(), sizeof theirs);
    if (theirs > 0) {
      const at::Tensor text = at::empty({theirs}, at::kByte);
      receive(text, peer, kTextTag).wait();
      all[static_cast<std::size_t>(peer)].assign(static_cast<const char*>(text.const_data_ptr()),
                                                 static_cast<std::size_t>(theirs));
    }
  }
  for (Transfer& transfer : sent) {
    transfer.wait();
  }
  return all;
}

std::chrono::milliseconds GlooGroup::timeout() const {
  return connection_->timeout;
}

void GlooGroup::set_timeout(std::chrono::seconds timeout) {
  if (connection_ != nullptr) {
    connection_->timeout = timeout;
  }
}

void GlooGroup::use_long_timeout() {
  set_timeout(kLongTimeout);
}

// A rank that waits for another waiting rank would blame the wrong one. Each rank therefore stores the rank it waits
// for; the failed rank is the first in the chain that has stored nothing.
void GlooGroup::report_failed_peer(int peer, const std::string& why) {
  const std::optional<int> failed = with_store_timeout([store = connection_->store, own = rank_, size = size_, peer] {
    const auto key_of = [](int rank) { return fmt::format("waits/{}", rank); };
    store->set(key_of(own), std::to_string(peer));
    std::this_thread::sleep_for(kReactionTime);
    int last = peer;
    for (int hop = 0; hop < size && store->check({key_of(last)}); ++hop) {
      last = std::stoi(store->get_to_str(key_of(last)));
    }
    return last;
  });
  throw PeerError(fmt::format("{} has exited or does not answer: {}", name_of(failed.value_or(peer)), why));
}

bool GlooGroup::announce(const std::string& message, bool final) {
  if (connection_ == nullptr) {
    return true;
  }
  const std::optional<bool> first =
      with_store_timeout([store = connection_->store, unprefixed = connection_->unprefixed, message, final] {
        if (final) {
          unprefixed->set("headroom/final", message);
        }
        return store->add("said", 1) == 1;
      });
  return first.value_or(true);  // if the store is unreachable, print the message twice rather than never
}

GlooGroup& default_group() {
  static GlooGroup group;
  return group;
}

namespace {

std::chrono::milliseconds limit_of(const Launch& launch) {
  return launch.agent_store ? kAgentTimeout : kConnectTimeout;
}

c10::intrusive_ptr<c10d::TCPStore> make_store(const Launch& launch, bool serve) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.port);
  options.isServer = serve;
  options.timeout = limit_of(launch);
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>(launch.host, options);
}

// Connects to the store of the run. Rank 0 serves it, unless the launcher does or the port is in use, possibly because
// another process serves the store.
c10::intrusive_ptr<c10d::TCPStore> open_store(const Launch& launch) {
  const bool serve = launch.rank == 0 && !launch.agent_store;
  if (serve) {
    try {
      return make_store(launch, /*serve=*/true);
    } catch (const c10::Error& error) {
      log_debug("rank 0 cannot serve the store: {}", first_line(error));
    }
  }
  std::string reason = "another program answers";
  try {
    if (auto store =
            within(limit_of(launch) + kStoreTimeout, [launch] { return make_store(launch, /*serve=*/false); })) {
      return *store;
    }
  } catch (const c10::Error& error) {
    reason = first_line(error);
  }
  fail("rank {} of {} ({}): no store of this run answers at {}:{}: {}", launch.rank, launch.size, launch.variables,
       launch.host, launch.port, reason);
}

// c10d writes each failed attempt to connect to stderr, with a backtrace. Its errors are reported here.
void hide_log_of_c10d() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
    FLAGS_caffe2_log_level = 3;
  }
}

std::string key_of_present(int rank) {
  return fmt::format("present/{}", rank);
}

// Returns the ranks that have not connected to the store, such as "ranks 1, 2".
std::string absent_ranks(c10d::Store& store, int size) {
  std::string found;
  int n = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.check({key_of_present(rank)}) && ++n <= kNamedRanks) {
      found += fmt::format("{}{}", n == 1 ? "" : ", ", rank);
    }
  }
  return fmt::format("rank{} {}{}", n == 1 ? "" : "s", found, n > kNamedRanks ? ", ..." : "");
}

// Throws Error naming the absent ranks unless all ranks connect in time.
void wait_for_all(c10d::Store& store, const Launch& launch) {
  store.set(key_of_present(launch.rank), "1");
  std::vector<std::string> keys;
  for (int rank = 0; rank < launch.size; ++rank) {
    keys.push_back(key_of_present(rank));
  }
  try {
    store.wait(keys, limit_of(launch));
  } catch (const std::exception&) {
    fail("rank {} of {} ({}): {} did not connect through {}:{} within {} s", launch.rank, launch.size, launch.variables,
         absent_ranks(store, launch.size), launch.host, launch.port,
         std::chrono::duration_cast<std::chrono::seconds>(limit_of(launch)).count());
  }
}

}  // namespace

void init_process_group() {
  const std::optional<Launch> launch = read_launch();
  if (!launch) {
    return;
  }
  GlooGroup& group = default_group();
  group.restarts_ = launch->restarts;
  if (launch->agent_store) {
    exit_with_parent();
  }
  if (launch->size == 1) {
    share_cores(1);
    return;
  }
  hide_log_of_c10d();
  auto connection = std::make_unique<GlooGroup::Connection>();
  try {
    connection->unprefixed = open_store(*launch);
    refuse_restart_after_final_failure(*connection->unprefixed);
    connection->store =
        c10::make_intrusive<c10d::PrefixStore>(fmt::format("headroom/{}", group.restarts_), connection->unprefixed);
    wait_for_all(*connection->store, *launch);
    connection->gloo =
        c10::make_intrusive<c10d::ProcessGroupGloo>(connection->store, launch->rank, launch->size,
                                                    c10d::ProcessGroupGloo::Options::create_default(limit_of(*launch)));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail("rank {} of {} ({}): cannot reach the other ranks: {}", launch->rank, launch->size, launch->variables,
         first_line(error));
  }
  group.connection_ = std::move(connection);
  group.rank_ = launch->rank;
  group.size_ = launch->size;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  group.hosts_ = group.gather(name.data());
  const auto here = std::ranges::count(group.hosts_, name.data());
  share_cores(launch->local_size.value_or(static_cast<int>(here)));
}

class Rendezvous::Store {
 public:
  c10::intrusive_ptr<c10d::TCPStore> server;
};

Rendezvous::Rendezvous() : store_(std::make_unique<Store>()) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  try {
    store_->server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  } catch (const std::exception& error) {
    fail("rendezvous: cannot open a port on 127.0.0.1: {}", first_line(error));
  }
}

Rendezvous::~Rendezvous() = default;

std::vector<std::pair<std::string, std::string>> Rendezvous::variables(int rank, int size) const {
  const std::string ranks = std::to_string(size);
  return {{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", ranks},
          {"LOCAL_WORLD_SIZE", ranks},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(store_->server->getPort())},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

}  // namespace headroom::parallel
