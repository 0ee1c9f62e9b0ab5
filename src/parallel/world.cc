#include "headroom/parallel/world.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "connection.h"
#include "headroom/core/system.h"

namespace headroom::parallel {
namespace {

constexpr std::uint32_t kGathering = std::uint32_t{1} << 30;  // above the tags of tensors
constexpr auto kOthersReact = std::chrono::milliseconds(500);

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

}  // namespace

class Transfer::Work {
 public:
  Work(World& of, int with, c10::intrusive_ptr<c10d::Work> work) : world_(of), peer_(with), work_(std::move(work)) {}

  void wait() {
    try {
      work_->wait(world_.connection_->timeout);
    } catch (const std::exception& error) {
      world_.blame(peer_, reason_of(error));
    }
  }

 private:
  World& world_;
  int peer_;
  c10::intrusive_ptr<c10d::Work> work_;
};

void Transfer::wait() {
  if (const std::shared_ptr<Work> work = std::move(work_)) {
    work->wait();
  }
}

World::World() = default;
World::~World() = default;

Transfer World::send(const at::Tensor& tensor, int to, std::uint32_t tag) {
  std::vector<at::Tensor> one = {tensor.detach()};
  try {
    const std::lock_guard lock(connection_->calls);
    connection_->traffic.sent += tag < kGathering ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
    return Transfer(
        std::make_shared<Transfer::Work>(*this, to, connection_->gloo->send(one, to, static_cast<int>(tag))));
  } catch (const std::exception& error) {
    blame(to, reason_of(error));
  }
}

Transfer World::receive(at::Tensor tensor, int from, std::uint32_t tag) {
  std::vector<at::Tensor> one = {tensor.detach()};
  try {
    const std::lock_guard lock(connection_->calls);
    connection_->traffic.received += tag < kGathering ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
    return Transfer(
        std::make_shared<Transfer::Work>(*this, from, connection_->gloo->recv(one, from, static_cast<int>(tag))));
  } catch (const std::exception& error) {
    blame(from, reason_of(error));
  }
}

World::Traffic World::traffic() const {
  if (connection_ == nullptr) {
    return {};
  }
  const std::lock_guard lock(connection_->calls);
  return connection_->traffic;
}

std::vector<std::string> World::gather(const std::string& mine) {
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

std::string World::name_of(int rank) const {
  const auto place = static_cast<std::size_t>(rank);
  return place < hosts_.size() ? fmt::format("rank {} (on {})", rank, hosts_[place]) : fmt::format("rank {}", rank);
}

void World::set_timeout(std::chrono::seconds timeout) {
  if (connection_ != nullptr) {
    connection_->timeout = timeout;
  }
}

// Who waits for a process that itself waits for another one would blame the wrong one: each says whom it waits for, and
// the one to blame is the first that says nothing.
void World::blame(int peer, const std::string& why) {
  const auto waits_for = [](int rank) { return fmt::format("waits/{}", rank); };
  int guilty = peer;
  try {
    c10d::Store& store = *connection_->store;
    store.set(waits_for(rank_), std::to_string(peer));
    std::this_thread::sleep_for(kOthersReact);
    for (int hop = 0; hop < size_ && store.check({waits_for(guilty)}); ++hop) {
      guilty = std::stoi(store.get_to_str(waits_for(guilty)));
    }
  } catch (const std::exception&) {  // without the store: who did not answer here
  }
  throw PeerError(fmt::format("{} is gone or does not answer: {}", name_of(guilty), why));
}

void World::be_patient() {
  set_timeout(kPatience);
}

std::int64_t World::threads(std::int64_t wanted) const {
  return wanted > 0 || size_ == 1 ? wanted : std::max<std::int64_t>(physical_cores() / local_size_, 1);
}

bool World::announce(const std::string& message, bool final) {
  if (connection_ == nullptr) {
    return true;
  }
  try {
    if (final) {
      connection_->unprefixed->set("headroom/final", message);
    }
    return connection_->store->add("said", 1) == 1;
  } catch (const std::exception&) {
    return true;  // rather twice than never
  }
}

void World::meet() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  hosts_ = gather(host.data());
}

}  // namespace headroom::parallel
