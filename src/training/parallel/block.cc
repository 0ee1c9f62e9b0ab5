#include "block.h"

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "connection.h"
#include "headroom/core/json.h"
#include "mapped_memory.h"

namespace headroom::parallel {
namespace {

constexpr std::size_t kPage = 1 << 16;  // a multiple of every system's

std::size_t bytes_of_numbers(std::int64_t numbers) {
  return (static_cast<std::size_t>(numbers) * sizeof(float) + kPage - 1) / kPage * kPage;
}

}  // namespace

// The block, then a word for each reader and tag: how often it was said.
class Block::Memory {
 public:
  Memory(GlooGroup& world, const Shape& shape)
      : tags_(shape.tags),
        numbers_bytes_(bytes_of_numbers(shape.numbers)),
        words_bytes_(static_cast<std::size_t>(world.size()) * shape.tags * sizeof(std::uint32_t)) {
    if (world.size() > 1) {
      own_.emplace(numbers_bytes_ + words_bytes_);
      own_data_ = own_->path.empty() ? nullptr : map_file(own_->file, 0, numbers_bytes_ + words_bytes_, true);
    }
    numbers_ = own_data_ ? at::from_blob(
                               own_data_.get(), {shape.numbers}, [kept = own_data_](void*) {}, at::kFloat)
                         : at::zeros({shape.numbers});
    meet(world);
  }

  const at::Tensor& numbers() const { return numbers_; }
  bool reads(int peer) const { return peers_[static_cast<std::size_t>(peer)].words != nullptr; }
  bool is_read(int peer) const { return readers_[static_cast<std::size_t>(peer)]; }
  const PeerMemory& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)].memory; }

  void say(std::uint32_t tag, int to) const {
    auto* const word = reinterpret_cast<std::uint32_t*>(own_data_.get() + numbers_bytes_) + place(tag, to);
    __atomic_add_fetch(word, 1, __ATOMIC_RELEASE);
    wake_all(word);
  }

  std::uint32_t next_time(std::uint32_t tag, int from) { return ++heard_[static_cast<std::size_t>(from)][tag]; }

  // Waits some time at most; whether it was said so often.
  bool was_said(const Incoming& incoming, int reader) const {
    const auto* const word =
        reinterpret_cast<const std::uint32_t*>(peers_[static_cast<std::size_t>(incoming.from_)].words.get()) +
        place(incoming.tag_, reader);
    const auto said = [&](std::uint32_t now) { return static_cast<std::int32_t>(now - incoming.times_) >= 0; };
    const std::uint32_t now = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (said(now)) {
      return true;
    }
    wait_while(word, now);
    return said(__atomic_load_n(word, __ATOMIC_ACQUIRE));
  }

 private:
  struct Peer {
    PeerMemory memory;
    std::shared_ptr<std::byte> words;  // null: it is not read
  };

  std::size_t place(std::uint32_t tag, int reader) const { return static_cast<std::size_t>(reader) * tags_ + tag; }

  void meet(GlooGroup& world) {
    const bool open = own_data_ != nullptr;
    const std::vector<std::string> said = world.gather(
        to_json_line({{"pid", ::getpid()}, {"path", open ? own_->path : ""}, {"name", open ? own_->name : ""}}));
    std::string mine;  // '1' for those that this process reads
    for (int rank = 0; rank < world.size(); ++rank) {
      Peer& peer = peers_.emplace_back();
      const Json json = parse_json(said[static_cast<std::size_t>(rank)], "processes");
      if (rank != world.rank()) {
        peer.memory = PeerMemory(json.at("pid").get<int>(), json.at("path").get<std::string>(),
                                 json.at("name").get<std::string>());
        peer.words = peer.memory.file ? map_file(peer.memory.file, numbers_bytes_, words_bytes_, false) : nullptr;
      }
      mine += peer.words ? '1' : '0';
      heard_.emplace_back(peer.words ? tags_ : 0, 0);
    }
    for (const std::string& theirs : world.gather(mine)) {
      readers_.push_back(theirs[static_cast<std::size_t>(world.rank())] == '1');
    }
  }

  std::uint32_t tags_;
  std::size_t numbers_bytes_, words_bytes_;
  std::optional<NamedMemory> own_;
  std::shared_ptr<std::byte> own_data_;
  at::Tensor numbers_;
  std::vector<Peer> peers_;  // by rank
  std::vector<bool> readers_;
  std::vector<std::vector<std::uint32_t>> heard_;  // by sender that is read, and tag: how often it was asked for
};

Block::Block(GlooGroup& world, const Shape& shape)
    : world_(world),
      first_tag_(shape.first_tag),
      memory_(std::make_unique<Memory>(world, shape)),
      numbers_(memory_->numbers()) {}

Block::~Block() = default;

bool Block::reads(int peer) const {
  return memory_->reads(peer);
}

bool Block::is_read(int peer) const {
  return memory_->is_read(peer);
}

Transfer Block::send(const Range& range, int to) const {
  if (!is_read(to)) {
    return world_.send(numbers_.narrow(0, range.begin, range.count()), to, first_tag_ + range.tag);
  }
  world_.count({.sent = range.count() * static_cast<std::int64_t>(sizeof(float))});
  return say(range.tag, to);
}

Transfer Block::say(std::uint32_t tag, int to) const {
  if (!is_read(to)) {
    return world_.send(at::zeros({1}, at::kByte), to, kUncounted + first_tag_ + tag);
  }
  memory_->say(tag, to);
  return {};
}

Block::Incoming Block::receive(const Range& range, int from, const at::Tensor& staging) const {
  if (reads(from)) {
    world_.count({.received = range.count() * static_cast<std::int64_t>(sizeof(float))});
    Incoming incoming = hear(range.tag, from);
    incoming.begin_ = range.begin;
    return incoming;
  }
  Incoming incoming;
  incoming.numbers_ = staging.narrow(0, 0, range.count());
  incoming.transfer_ = world_.receive(incoming.numbers_, from, first_tag_ + range.tag);
  return incoming;
}

Block::Incoming Block::hear(std::uint32_t tag, int from) const {
  Incoming incoming;
  incoming.block_ = this;
  incoming.from_ = from;
  incoming.tag_ = tag;
  if (reads(from)) {
    incoming.times_ = memory_->next_time(tag, from);
  } else {
    incoming.transfer_ = world_.receive(at::empty({1}, at::kByte), from, kUncounted + first_tag_ + tag);
  }
  return incoming;
}

void Block::wait_for(const Incoming& incoming) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (;;) {
    const bool lived = memory_->peer(incoming.from_).lives();  // before one looks: its last words count
    if (memory_->was_said(incoming, world_.rank())) {
      return;
    }
    if (!lived) {
      world_.report_failed_peer(incoming.from_, "its process has ended");
    }
    if (Clock::now() - start > world_.connection_->timeout.load()) {
      world_.report_failed_peer(incoming.from_, "it took longer than train.timeout");
    }
  }
}

void Block::Incoming::wait() {
  if (transfer_) {
    transfer_->wait();
  } else if (block_ != nullptr) {
    block_->wait_for(*this);
  }
}

at::Tensor Block::Incoming::take(std::int64_t begin, const at::Tensor& place) const {
  if (numbers_.defined()) {
    return numbers_.narrow(0, begin, place.numel());
  }
  const std::int64_t at = (begin_ + begin) * static_cast<std::int64_t>(sizeof(float));
  const std::string why = block_->memory_->peer(from_).read(at, place.mutable_data_ptr(), place.nbytes());
  if (!why.empty()) {
    throw PeerError(fmt::format("{} cannot be read: {}", block_->world_.name_of(from_), why));
  }
  return place;
}

}  // namespace headroom::parallel
