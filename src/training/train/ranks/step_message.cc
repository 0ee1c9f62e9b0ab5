#include "step_message.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/ops/optimizers.h"

namespace nlohmann {

template <>
struct adl_serializer<at::Tensor> {
  static void to_json(json& out, const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    const at::Tensor elements = tensor.detach().cpu().contiguous();
    const auto* const first = static_cast<const std::uint8_t*>(elements.const_data_ptr());
    out = {{"type", elements.scalar_type()},
           {"sizes", elements.sizes().vec()},
           {"bytes", json::binary({first, first + elements.nbytes()})}};
  }
  static void from_json(const json& in, at::Tensor& tensor) {
    if (in.is_null()) {
      return;
    }
    tensor = at::empty(in.at("sizes").get<std::vector<std::int64_t>>(), in.at("type").get<at::ScalarType>());
    std::memcpy(tensor.mutable_data_ptr(), in.at("bytes").get_binary().data(), tensor.nbytes());
  }
};

}  // namespace nlohmann

namespace headroom::nn {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BufferUpdate, sum, count, epsilon)
}  // namespace headroom::nn

namespace headroom::train {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MicroBatchReport, micro_batch, cross_entropy, regulariser, updates)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepMessage, reports, squares, has_gradient, stop, own_hash, next_hash)

std::string to_text(const StepMessage& message) {
  std::string text;
  SortedJson::to_cbor(message, text);
  return text;
}

StepMessage from_text(const std::string& text) {
  try {
    return SortedJson::from_cbor(text).get<StepMessage>();
  } catch (const SortedJson::exception&) {
    fail("train: a message from another rank is damaged; do all ranks run the same version?");
  }
}

std::optional<int> disagreement(const std::vector<StepMessage>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].next_hash != all[(rank + 1) % all.size()].own_hash) {
      return static_cast<int>(rank);
    }
  }
  return std::nullopt;
}

ReducedStep reduce_reports(std::vector<StepMessage>& all, std::int64_t micro_batches,
                           const std::map<std::string, at::Tensor>& buffers) {
  std::vector<MicroBatchReport*> order(static_cast<std::size_t>(micro_batches));
  ReducedStep step;
  for (StepMessage& message : all) {
    step.stop = step.stop || message.stop;
    for (MicroBatchReport& report : message.reports) {
      order[static_cast<std::size_t>(report.micro_batch)] = &report;
    }
  }
  bool first = true;
  for (MicroBatchReport* report : order) {
    step.loss = first ? report->cross_entropy.item<double>() : step.loss + report->cross_entropy.item<double>();
    first = false;
    for (auto& [name, update] : report->updates) {
      update.buffer = buffers.at(name);
      nn::report(step.updates, name, update);
    }
  }
  first = true;
  for (const MicroBatchReport* report : order) {
    if (report->regulariser.defined()) {
      const double value = report->regulariser.item<double>();
      step.regulariser = first ? value : step.regulariser + value;
      first = false;
    }
  }
  return step;
}

double gradient_norm(const std::vector<StepMessage>& all, const Layout& layout) {
  std::vector<std::size_t> next(all.size(), 0);
  double sum = 0.0, of_tensor = 0.0;
  for (const Shard& shard : layout.shards) {
    const auto owner = static_cast<std::size_t>(shard.owner);
    const std::int64_t elements = layout.places[shard.tensor].count;
    const bool whole = shard.count() == elements;
    of_tensor = shard.begin == 0 ? 0.0 : of_tensor;
    for (std::int64_t left = whole ? 1 : shard.count() / ops::kSquareBlock + 1; left > 0; --left) {
      of_tensor += all[owner].squares.at(next[owner]++);
    }
    sum += shard.end == elements ? of_tensor : 0.0;
  }
  return std::sqrt(sum);
}

namespace {

constexpr std::int64_t kSlice = 1 << 16;  // elements added at a time, so that the sum stays in cache

}  // namespace

class Receiver::Reduction {
 public:
  Reduction(parallel::GlooGroup& group, Work work) : group_(group), work_(std::move(work)) {
    const std::int64_t widest = max_over(work_.buckets, &Bucket::count, std::int64_t{0});
    for (auto& set : staging_) {
      for (int peer = 0; peer < group_.size(); ++peer) {
        set.push_back(peer == group_.rank() ? at::Tensor() : at::empty({widest}));
      }
    }
  }

  std::size_t buckets() const { return work_.buckets.size(); }

  // `own_ready`: by bucket, set when this rank's gradients are complete.
  void reduce_round(std::int64_t round, std::vector<std::future<void>>& own_ready) {
    const at::NoGradGuard no_grad;
    const c10::ParallelGuard one_thread(true);  // the other cores run the backward pass
    round_ = round;
    Incoming now = request(0), later;
    for (std::size_t b = 0; b < work_.buckets.size(); ++b) {
      later = request(b + 1);
      if (group_.rank() < ranks()) {
        own_ready[b].get();
      }
      for (Arriving& one : now) {
        one.transfer.wait();
      }
      reduce_bucket(work_.buckets[b], now);
      now = std::move(later);
    }
  }

 private:
  // Accumulators of a bucket, by rank. This rank's own accumulator is in the buffer.
  struct Arriving {
    at::Tensor elements;
    parallel::Transfer transfer;
  };
  using Incoming = std::vector<Arriving>;

  // Number of ranks with an accumulator in this round; they are ranks 0, ..., ranks() - 1.
  int ranks() const {
    return static_cast<int>(std::min<std::int64_t>(group_.size(), work_.accumulators - round_ * group_.size()));
  }

  // Two buckets are in transit at a time.
  Incoming request(std::size_t b) {
    Incoming incoming;
    if (b >= work_.buckets.size()) {
      return incoming;
    }
    for (int peer = 0; peer < ranks(); ++peer) {
      Arriving& arriving = incoming.emplace_back();
      if (peer != group_.rank()) {
        arriving.elements = staging_[b % 2][static_cast<std::size_t>(peer)].narrow(0, 0, work_.buckets[b].count());
        arriving.transfer = group_.receive(arriving.elements, peer, work_.buckets[b].tag);
      }
    }
    return incoming;
  }

  void reduce_bucket(const Bucket& bucket, const Incoming& incoming) {
    const at::Tensor own = bucket.in(work_.gradients);
    const bool several_rounds = work_.running.defined();
    const at::Tensor sum = several_rounds ? work_.running.narrow(0, bucket.running_begin, own.numel()) : own;
    for (std::int64_t begin = 0; begin < own.numel(); begin += kSlice) {
      const std::int64_t count = std::min(kSlice, own.numel() - begin);
      reduce_slice({.sum = sum.narrow(0, begin, count), .own = own.narrow(0, begin, count), .begin = begin}, incoming);
    }
  }

  struct Slice {
    at::Tensor sum, own;
    std::int64_t begin = 0;  // in the bucket
  };

  // Adds the accumulators in the order of the ranks, starting from the sum of the previous rounds.
  void reduce_slice(const Slice& slice, const Incoming& incoming) {
    const std::int64_t count = slice.own.numel();
    at::Tensor so_far = round_ > 0 ? slice.sum : at::Tensor();
    for (std::size_t peer = 0; peer < incoming.size(); ++peer) {
      at::Tensor next = slice.own;
      if (static_cast<int>(peer) != group_.rank()) {
        next = incoming[peer].elements.narrow(0, slice.begin, count);
      }
      if (!so_far.defined()) {
        so_far = next;
        continue;
      }
      at::Tensor to = peer + 1 == incoming.size() ? slice.sum : added_.narrow(0, 0, count);
      so_far = at::add_out(to, so_far, next);
    }
    if (round_ == 0 && incoming.size() == 1) {  // nothing was added
      slice.sum.copy_(so_far);
    }
  }

  parallel::GlooGroup& group_;
  Work work_;
  std::vector<at::Tensor> staging_[2];  // by rank
  at::Tensor added_ = at::empty({kSlice});
  std::int64_t round_ = 0;
};

Receiver::Receiver(parallel::GlooGroup& group, Work work)
    : reduction_(std::make_shared<Reduction>(group, std::move(work))) {}

Receiver::~Receiver() {
  if (thread_.joinable()) {
    thread_.detach();
  }
}

void Receiver::start(std::int64_t round) {
  ready_ = std::vector<std::promise<void>>(reduction_->buckets());
  std::vector<std::future<void>> own_ready;
  for (std::promise<void>& ready : ready_) {
    own_ready.push_back(ready.get_future());
  }
  std::packaged_task<void()> task([reduction = reduction_, round, own_ready = std::move(own_ready)]() mutable {
    reduction->reduce_round(round, own_ready);
  });
  done_ = task.get_future();
  thread_ = std::thread(std::move(task));
}

void Receiver::set_own_ready(std::size_t bucket) {
  ready_[bucket].set_value();
}

void Receiver::finish() {
  if (thread_.joinable()) {
    thread_.join();
    done_.get();
  }
}

}  // namespace headroom::train
