#include "receiver.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <utility>

namespace headroom::train {

class Receiver::State {
 public:
  State(parallel::World& world, Work work)
      : world_(world), work_(std::move(work)), ready_(work_.buckets.size(), false) {
    std::int64_t widest = 0;
    for (const Bucket& bucket : work_.buckets) {
      widest = std::max(widest, bucket.end - bucket.begin);
    }
    for (auto& set : staging_) {
      for (int peer = 1; peer < world_.size(); ++peer) {
        set.push_back(at::empty({widest}));
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

  const Work& work() const { return work_; }

 private:
  struct Coming {
    at::Tensor numbers;
    parallel::Transfer transfer;
  };

  // Processes that have a sum in this round, in the order of their sums.
  int processes() const {
    return static_cast<int>(std::min<std::int64_t>(world_.size(), work_.sums - round_ * world_.size()));
  }

  void add_round() {
    if (work_.running.defined() && round_ == 0) {
      work_.running.fill_(-0.0);
    }
    std::vector<Coming> now = ask_for(0), later;
    for (std::size_t b = 0; b < work_.buckets.size(); ++b) {
      later = ask_for(b + 1);
      add_bucket(b, now);
      now = std::move(later);
    }
  }

  // The other processes' sums of a bucket. Two buckets are on their way at a time.
  std::vector<Coming> ask_for(std::size_t b) {
    std::vector<Coming> coming;
    if (b >= work_.buckets.size()) {
      return coming;
    }
    const Bucket& bucket = work_.buckets[b];
    std::size_t slot = 0;
    for (int peer = 0; peer < processes(); ++peer) {
      if (peer != world_.rank()) {
        const at::Tensor place = staging_[b % 2][slot++].narrow(0, 0, bucket.end - bucket.begin);
        coming.push_back({place, world_.receive(place, peer, bucket.tag)});
      }
    }
    return coming;
  }

  void add_bucket(std::size_t b, std::vector<Coming>& coming) {
    const Bucket& bucket = work_.buckets[b];
    const at::Tensor own = work_.gradients.narrow(0, bucket.begin, bucket.end - bucket.begin);
    const bool several_rounds = work_.running.defined();
    at::Tensor sum = several_rounds ? work_.running.narrow(0, bucket.begin - work_.begin, own.numel()) : at::Tensor();
    std::size_t next = 0;
    for (int peer = 0; peer < processes(); ++peer) {
      if (peer == world_.rank()) {
        wait_for_own(b);
        // a + b and b + a are the same number, so that the sum can stay where it is to be.
        sum = several_rounds || !sum.defined() ? plus(sum, own) : plus(own, sum);
      } else {
        coming[next].transfer.wait();
        sum = plus(sum, coming[next++].numbers);
      }
    }
    if (!several_rounds && !sum.is_same(own)) {  // this process has no sum in the only round
      own.copy_(sum);
    }
  }

  static at::Tensor plus(const at::Tensor& sum, const at::Tensor& more) {
    return sum.defined() ? sum.add_(more) : more;
  }

  void wait_for_own(std::size_t b) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_[b] || stopping_; });
  }

  parallel::World& world_;
  Work work_;
  std::vector<at::Tensor> staging_[2];
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;
  std::int64_t round_ = 0;
  bool busy_ = false, stopping_ = false;
  std::exception_ptr error_;
};

Receiver::Receiver(parallel::World& world, Work work)
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

const at::Tensor& Receiver::sum() const {
  return state_->work().running;
}

}  // namespace headroom::train
