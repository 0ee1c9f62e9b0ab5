#include "gloo_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <type_traits>

#include "connection.h"

namespace headroom::parallel {
namespace {

constexpr std::uint32_t kGathering = kUncounted + (std::uint32_t{1} << 30) - 2;
constexpr auto kOthersReact = std::chrono::milliseconds(500);
constexpr auto kStoreAnswers = std::chrono::seconds(5);

at::Tensor bytes_of(const void* data, std::size_t size) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(size)}, at::kByte);
  if (size > 0) {
    std::memcpy(bytes.mutable_data_ptr(), data, size);
  }
  return bytes;
}

// The first line of what c10d or Gloo say, without the place in their source.
std::string reason_of(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  const std::size_t place = text.rfind("] ");
  return place == std::string::npos ? text : text.substr(place + 2);
}

// What `ask` returns, or nothing where it throws or the store's host is cut off, for which c10d would wait for minutes.
// The thread that still waits then is left behind: the process is about to end. `ask` owns what it uses.
template <class Ask>
auto in_time(Ask ask) -> std::optional<std::invoke_result_t<Ask>> {
  std::packaged_task<std::invoke_result_t<Ask>()> task(std::move(ask));
  auto answer = task.get_future();
  std::thread(std::move(task)).detach();
  try {
    return answer.wait_for(kStoreAnswers) == std::future_status::ready ? std::optional(answer.get()) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

class Transfer::Work {
 public:
  Work(GlooGroup& of, int with, c10::intrusive_ptr<c10d::Work> work)
      : world_(of), peer_(with), work_(std::move(work)) {}

  void wait() {
    try {
      work_->wait(world_.connection_->timeout);
    } catch (const std::exception& error) {
      world_.report_failed_peer(peer_, reason_of(error));
    }
  }

 private:
  GlooGroup& world_;
  int peer_;
  c10::intrusive_ptr<c10d::Work> work_;
};

void Transfer::wait() {
  if (const std::shared_ptr<Work> work = std::move(work_)) {
    work->wait();
  }
}

GlooGroup::GlooGroup() = default;
GlooGroup::~GlooGroup() = default;

Transfer GlooGroup::send(const at::Tensor& tensor, int to, std::uint32_t tag) {
  std::vector<at::Tensor> one = {tensor.detach()};
  try {
    const std::lock_guard lock(connection_->calls);
    connection_->traffic.sent += tag < kUncounted ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
    return Transfer(
        std::make_shared<Transfer::Work>(*this, to, connection_->gloo->send(one, to, static_cast<int>(tag))));
  } catch (const std::exception& error) {
    report_failed_peer(to, reason_of(error));
  }
}

Transfer GlooGroup::receive(at::Tensor tensor, int from, std::uint32_t tag) {
  std::vector<at::Tensor> one = {tensor.detach()};
  try {
    const std::lock_guard lock(connection_->calls);
    connection_->traffic.received += tag < kUncounted ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
    return Transfer(
        std::make_shared<Transfer::Work>(*this, from, connection_->gloo->recv(one, from, static_cast<int>(tag))));
  } catch (const std::exception& error) {
    report_failed_peer(from, reason_of(error));
  }
}

void GlooGroup::count(const Traffic& more) {
  const std::lock_guard lock(connection_->calls);
  connection_->traffic.sent += more.sent;
  connection_->traffic.received += more.received;
}

GlooGroup::Traffic GlooGroup::traffic() const {
  if (connection_ == nullptr) {
    return {};
  }
  const std::lock_guard lock(connection_->calls);
  return connection_->traffic;
}

std::vector<std::string> GlooGroup::gather(const std::string& mine) {
  std::vector<std::string> all(static_cast<std::size_t>(size_));
  all[static_cast<std::size_t>(rank_)] = mine;
  if (size_ == 1) {
    return all;
  }
  const std::int64_t length = std::ssize(mine);
  const at::Tensor header = bytes_of(&length, sizeof length), body = bytes_of(mine.data(), mine.size());
  std::vector<Transfer> sent;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) {
      sent.push_back(send(header, peer, kGathering));
      if (length > 0) {
        sent.push_back(send(body, peer, kGathering + 1));
      }
    }
  }
  // All are asked for at once, so that a process that is gone is noticed by all others, whoever else is slow.
  std::vector<std::pair<at::Tensor, Transfer>> headers(all.size());
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) {
      auto& [tensor, transfer] = headers[static_cast<std::size_t>(peer)];
      tensor = at::empty({static_cast<std::int64_t>(sizeof length)}, at::kByte);
      transfer = receive(tensor, peer, kGathering);
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
      receive(text, peer, kGathering + 1).wait();
      all[static_cast<std::size_t>(peer)].assign(static_cast<const char*>(text.const_data_ptr()),
                                                 static_cast<std::size_t>(theirs));
    }
  }
  for (Transfer& transfer : sent) {
    transfer.wait();
  }
  return all;
}

std::string GlooGroup::name_of(int rank) const {
  const auto place = static_cast<std::size_t>(rank);
  return place < hosts_.size() ? fmt::format("rank {} (on {})", rank, hosts_[place]) : fmt::format("rank {}", rank);
}

void GlooGroup::set_timeout(std::chrono::seconds timeout) {
  if (connection_ != nullptr) {
    connection_->timeout = timeout;
  }
}

// Who waits for a process that itself waits for another one would blame the wrong one: each says whom it waits for, and
// the one to blame is the first that says nothing.
void GlooGroup::report_failed_peer(int peer, const std::string& why) {
  const std::optional<int> found = in_time([store = connection_->store, own = rank_, size = size_, peer] {
    const auto waits_for = [](int rank) { return fmt::format("waits/{}", rank); };
    store->set(waits_for(own), std::to_string(peer));
    std::this_thread::sleep_for(kOthersReact);
    int guilty = peer;
    for (int hop = 0; hop < size && store->check({waits_for(guilty)}); ++hop) {
      guilty = std::stoi(store->get_to_str(waits_for(guilty)));
    }
    return guilty;
  });
  // Without the store: who did not answer here.
  throw PeerError(fmt::format("{} is gone or does not answer: {}", name_of(found.value_or(peer)), why));
}

void GlooGroup::use_long_timeout() {
  set_timeout(kPatience);
}

bool GlooGroup::announce(const std::string& message, bool final) {
  if (connection_ == nullptr) {
    return true;
  }
  const std::optional<bool> first =
      in_time([store = connection_->store, unprefixed = connection_->unprefixed, message, final] {
        if (final) {
          unprefixed->set("headroom/final", message);
        }
        return store->add("said", 1) == 1;
      });
  return first.value_or(true);  // rather twice than never
}

void GlooGroup::meet() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  hosts_ = gather(host.data());
}

}  // namespace headroom::parallel
