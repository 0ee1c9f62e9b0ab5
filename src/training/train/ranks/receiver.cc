#include "receiver.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <utility>

namespace headroom::train {
namespace {

constexpr std::int64_t kPiece = 1 << 16;  // numbers that are added at a time

}  // namespace

class Receiver::State {
 public:
  State(parallel::GlooGroup& world, Work work)
      : world_(world), work_(std::move(work)), ready_(work_.buckets.size(), false) {
    std::int64_t widest = 0;
    for (const Bucket& bucket : work_.buckets) {
      widest = std::max(widest, bucket.range.count());
    }
    for (auto& set : staging_) {
      for (int peer = 0; peer < world_.size(); ++peer) {
        const bool needed = peer != world_.rank() && !work_.gradients->reads(peer);
        set.push_back(needed ? at::empty({widest}) : at::Tensor());
      }
    }
  }

  void start(std::int64_t round) {
    const std::lock_guard lock(mutex_);
    std::fill(ready_.begin(), ready_.end(), false);
    round_ = round;
    busy_ = true;
    changed_.notify_all();
  }

  void own_ready(std::size_t bucket) {
    const std::lock_guard lock(mutex_);
    ready_[bucket] = true;
    changed_.notify_all();
  }

  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
    if (error_) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

  // Whether the thread has ended or will at once.
  bool stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    return !busy_;
  }

  void run() {
    const at::NoGradGuard no_grad;
    const c10::ParallelGuard one_thread(true);  // the others compute
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return busy_ || stopping_; });
        if (stopping_) {
          return;
        }
      }
      std::exception_ptr error;
      try {
        add_round();
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      error_ = error;
      busy_ = false;
      changed_.notify_all();
    }
  }

 private:
  // The processes' sums of a bucket in their order; this one's is in the block.
  using Coming = std::vector<parallel::Block::Incoming>;

  // Processes that have a sum in this round, in the order of their sums.
  int processes() const {
    return static_cast<int>(std::min<std::int64_t>(world_.size(), work_.sums - round_ * world_.size()));
  }

  void add_round() {
    Coming now = ask_for(0), later;
    for (std::size_t b = 0; b < work_.buckets.size(); ++b) {
      later = ask_for(b + 1);
      if (world_.rank() < processes()) {
        wait_for_own(b);
      }
      for (parallel::Block::Incoming& one : now) {
        one.wait();
      }
      add_bucket(work_.buckets[b], now);
      now = std::move(later);
    }
    say_added();
  }

  // Two buckets are on their way at a time.
  Coming ask_for(std::size_t b) {
    Coming coming;
    if (b >= work_.buckets.size()) {
      return coming;
    }
    for (int peer = 0; peer < processes(); ++peer) {
      coming.push_back(peer == world_.rank()
                           ? parallel::Block::Incoming()
                           : work_.gradients->receive(work_.buckets[b].range, peer,
                                                      staging_[b % 2][static_cast<std::size_t>(peer)]));
    }
    return coming;
  }

  // Piece by piece, so that what is added next to what was read stays in the cache.
  void add_bucket(const Bucket& bucket, const Coming& coming) {
    const at::Tensor own = work_.gradients->numbers().narrow(0, bucket.range.begin, bucket.range.count());
    const bool several_rounds = work_.running.defined();
    const at::Tensor sum = several_rounds ? work_.running.narrow(0, bucket.sum, own.numel()) : own;
    for (std::int64_t begin = 0; begin < own.numel(); begin += kPiece) {
      const std::int64_t count = std::min(kPiece, own.numel() - begin);
      add_piece({.sum = sum.narrow(0, begin, count), .own = own.narrow(0, begin, count), .begin = begin}, coming);
    }
  }

  struct Piece {
    at::Tensor sum, own;
    std::int64_t begin = 0;  // in the bucket
  };

  void add_piece(const Piece& piece, const Coming& coming) {
    const std::int64_t count = piece.own.numel();
    at::Tensor so_far = round_ > 0 ? piece.sum : at::Tensor();
    for (std::size_t peer = 0; peer < coming.size(); ++peer) {
      at::Tensor next = piece.own;
      if (static_cast<int>(peer) != world_.rank()) {
        next = coming[peer].take(piece.begin, (so_far.defined() ? read_ : added_).narrow(0, 0, count));
      }
      if (!so_far.defined()) {
        so_far = next;
        continue;
      }
      at::Tensor to = peer + 1 == coming.size() ? piece.sum : added_.narrow(0, 0, count);
      so_far = at::add_out(to, so_far, next);
    }
    if (round_ == 0 && coming.size() == 1) {  // nothing was added
      piece.sum.copy_(so_far);
    }
  }

  // To those that must leave their gradients as they are until then.
  void say_added() {
    std::vector<parallel::Transfer> said;
    for (int peer = 0; peer < processes() && !work_.buckets.empty(); ++peer) {
      if (peer != world_.rank() && work_.gradients->reads(peer)) {
        said.push_back(work_.gradients->say(work_.added, peer));
      }
    }
    for (parallel::Transfer& one : said) {
      one.wait();
    }
  }

  void wait_for_own(std::size_t b) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_[b] || stopping_; });
  }

  parallel::GlooGroup& world_;
  Work work_;
  std::vector<at::Tensor> staging_[2];  // by process
  at::Tensor read_ = at::empty({kPiece}), added_ = at::empty({kPiece});
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;
  std::int64_t round_ = 0;
  bool busy_ = false, stopping_ = false;
  std::exception_ptr error_;
};

Receiver::Receiver(parallel::GlooGroup& world, Work work)
    : state_(std::make_shared<State>(world, std::move(work))), thread_([state = state_] { state->run(); }) {}

// An error elsewhere may leave the thread waiting for a process that sends nothing any more.
Receiver::~Receiver() {
  if (state_->stop()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Receiver::start(std::int64_t round) {
  state_->start(round);
}

void Receiver::own_ready(std::size_t bucket) {
  state_->own_ready(bucket);
}

void Receiver::finish() {
  state_->finish();
}

}  // namespace headroom::train
