// Several processes (or several sums of gradients a step): each sum goes to the process that looks after the parameter,
// which adds the sums in the order of their micro-batches. So the result does not depend on how many processes there
// are, and with sums of one micro-batch each it is what autograd adds up by itself.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/system.h"
#include "headroom/cost/processes.h"
#include "headroom/ops/adamw.h"
#include "headroom/train/exchange.h"
#include "receiver.h"
#include "step_message.h"

namespace headroom::train {
namespace {

// Tags above those of buckets.
constexpr std::uint32_t kPublished = std::uint32_t{1} << 29, kMemory = kPublished + 2;

class OrderedExchange : public Exchange {
 public:
  OrderedExchange(models::Model& model, const config::TrainOptions& options, parallel::World& world,
                  const Shares& shares)
      : parameters_(model.parameters()),
        world_(world),
        options_(options),
        sums_(sums_of(options)),
        micro_batches_(options.accumulate / sums_),
        parts_(parts_of(options, world.rank(), world.size())),
        rounds_(std::ssize(parts_)),
        present_(parameters_.all().size()) {
    if (!model.device().is_cpu()) {
      misuse(
          "train.device: must be \"cpu\" where gradients are added in order (several processes, train.parts), got {}",
          model.device().str());
    }
    for (const nn::Parameter& made : parameters_.made()) {
      if (made.buffer) {
        buffers_.emplace(made.name, made.tensor);
      }
    }
    lay_out(shares);
    receiver_ = std::make_unique<Receiver>(
        world, Receiver::Work{.gradients = gradients_,
                              .buckets = own_buckets_,
                              .sums = sums_,
                              .running = rounds_ > 1 ? at::empty({own_end_ - own_begin_}) : at::Tensor(),
                              .begin = own_begin_});
  }

  ~OrderedExchange() override {
    for (const nn::Parameter& parameter : parameters_.all()) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
    }
  }

  void verify(const models::Memory& memory, const Compute& compute) override {
    if (world_.size() == 1) {
      return;
    }
    const int n = world_.size(), next = (world_.rank() + 1) % n, before = (world_.rank() + n - 1) % n;
    // Every process has a first part, all of as many rows, which come first in its memory.
    std::int64_t micro_batches = 0;
    for (const Part& part : parts_) {
      micro_batches += part.end - part.first;
    }
    models::Memory theirs;
    std::vector<parallel::Transfer> transfers;
    for (const at::Tensor& layer : memory.layers) {
      const at::Tensor mine = layer.narrow(0, 0, layer.size(0) / micro_batches * micro_batches_).contiguous();
      theirs.layers.push_back(at::empty_like(mine));
      transfers.push_back(world_.send(mine, before, kMemory));
      transfers.push_back(world_.receive(theirs.layers.back(), next, kMemory));
    }
    for (parallel::Transfer& transfer : transfers) {
      transfer.wait();
    }
    settle();
    gradients_.fill_(-0.0);
    compute(parts_of(options_, next, n).front(), theirs);
    message_.next = hash_of_gradients();
    std::fill(present_.begin(), present_.end(), false);
    verifies_ = true;
  }

  std::vector<Part> parts() const override { return parts_; }

  void begin(const Part& /*part*/) override {
    settle();
    // What adding it changes nothing of, zeros of either sign included.
    gradients_.fill_(-0.0);
    receiver_->start(round_++);
  }

  void last_backward() override {
    for (Bucket& bucket : buckets_) {
      bucket.missing = bucket.parameters;
    }
    reporting_ = !verifies_;  // what is to be hashed must lie there whole
  }

  void end(const Part& part) override {
    reporting_ = false;
    if (part.first == part.end) {
      return;
    }
    if (std::exchange(verifies_, false)) {
      message_.own = hash_of_gradients();
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].missing > 0) {
        ready(b);
      }
    }
  }

  Gathered gather(std::vector<Report> mine) override {
    settle();
    round_ = 0;
    const std::vector<double> squares = ops::square_sums(gradients());
    message_.reports = std::move(mine);
    message_.squares = squares;
    message_.present = present_;
    message_.stop = interrupted();
    std::vector<StepMessage> all;
    for (const std::string& text : world_.gather(to_text(std::exchange(message_, {})))) {
      all.push_back(from_text(text));
    }
    if (const std::optional<int> rank = disagreement(all)) {
      const int other = (*rank + 1) % world_.size();
      fail(
          "train.verify_every: {} and {} computed other gradients of the same micro-batch: one of them is not to be "
          "trusted",
          world_.name_of(*rank), world_.name_of(other));
    }
    std::fill(present_.begin(), present_.end(), false);
    discard_absent(all);
    return add_up(all);
  }

  const std::vector<std::size_t>& owned() const override { return owned_; }

  std::vector<at::Tensor> gradients() override {
    std::vector<at::Tensor> all;
    for (const std::size_t i : owned_) {
      const Place& place = places_[i];
      const at::Tensor& flat = receiver_->sum().defined() ? receiver_->sum() : gradients_;
      const std::int64_t begin = receiver_->sum().defined() ? place.begin - own_begin_ : place.begin;
      all.push_back(flat.narrow(0, begin, place.count).view(parameters_.all()[i].tensor.sizes()));
    }
    return all;
  }

  void publish(bool moved) override {
    if (!moved) {
      return;
    }
    std::vector<parallel::Transfer> transfers;
    const auto range = [&](int owner) {
      const auto& [begin, end] = ranges_[static_cast<std::size_t>(owner)];
      return values_.narrow(0, begin, end - begin);
    };
    for (int peer = 0; peer < world_.size(); ++peer) {
      if (peer == world_.rank()) {
        continue;
      }
      if (const at::Tensor mine = range(world_.rank()); mine.numel() > 0) {
        transfers.push_back(world_.send(mine, peer, kPublished));
      }
      if (const at::Tensor theirs = range(peer); theirs.numel() > 0) {
        transfers.push_back(world_.receive(theirs, peer, kPublished));
      }
    }
    for (parallel::Transfer& transfer : transfers) {
      transfer.wait();
    }
  }

 private:
  struct Place {  // of a parameter in the block
    std::int64_t begin = 0, count = 0;
    std::size_t bucket = 0;
  };
  struct Bucket {
    int owner = 0;
    std::int64_t begin = 0, end = 0;
    std::int64_t parameters = 0, missing = 0;
    std::size_t own = 0;  // its place among the own ones
  };

  struct Arrived : torch::autograd::PostAccumulateGradHook {
    Arrived(OrderedExchange& of, std::size_t i) : exchange(of), parameter(i) {}
    void operator()(const at::Tensor& /*tensor*/) override { exchange.arrived(parameter); }
    OrderedExchange& exchange;
    std::size_t parameter;
  };

  std::string hash_of_gradients() const {
    Sha256 hash;
    hash.update(std::span(static_cast<const std::byte*>(gradients_.const_data_ptr()), gradients_.nbytes()));
    return hash.hex();
  }

  // Owner after owner; each one's parameters from the last to the first, as backward passes come by.
  void lay_out(const Shares& shares) {
    const std::vector<nn::Parameter>& all = parameters_.all();
    places_.resize(all.size());
    std::int64_t end = 0;
    for (int owner = 0; owner < world_.size(); ++owner) {
      const std::int64_t begin = end;
      bool fresh = true;
      for (std::size_t i = all.size(); i-- > 0;) {
        if (shares.owner(i) != owner) {
          continue;
        }
        const std::int64_t count = all[i].tensor.numel();
        if (fresh || end + count - buckets_.back().begin > cost::kBucketNumbers) {
          buckets_.push_back({.owner = owner, .begin = end, .end = end});
          fresh = false;
        }
        places_[i] = {.begin = end, .count = count, .bucket = buckets_.size() - 1};
        end += cost::aligned(count);
        buckets_.back().end = end;
        ++buckets_.back().parameters;
      }
      ranges_.emplace_back(begin, end);
    }
    std::tie(own_begin_, own_end_) = ranges_[static_cast<std::size_t>(world_.rank())];
    for (Bucket& bucket : buckets_) {
      if (bucket.owner == world_.rank()) {
        bucket.own = own_buckets_.size();
        own_buckets_.push_back({.begin = bucket.begin, .end = bucket.end, .tag = tag_of(bucket)});
      }
    }
    move_into_blocks(end, shares);
  }

  std::uint32_t tag_of(const Bucket& bucket) const { return static_cast<std::uint32_t>(&bucket - buckets_.data()); }

  void move_into_blocks(std::int64_t numbers, const Shares& shares) {
    const at::NoGradGuard no_grad;
    const std::vector<nn::Parameter>& all = parameters_.all();
    values_ = at::zeros({numbers});
    gradients_ = at::zeros({numbers});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const at::Tensor& parameter = all[i].tensor;
      const auto place_in = [&](const at::Tensor& block) {
        return block.narrow(0, places_[i].begin, places_[i].count).view(parameter.sizes());
      };
      const at::Tensor value = place_in(values_);
      value.copy_(parameter);
      parameter.set_data(value);
      parameter.mutable_grad() = place_in(gradients_);
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Arrived>(*this, i));
      if (shares.owner(i) == world_.rank()) {
        owned_.push_back(i);
      }
    }
  }

  void arrived(std::size_t parameter) {
    present_[parameter] = true;
    const std::size_t b = places_[parameter].bucket;
    if (reporting_ && --buckets_[b].missing == 0) {
      ready(b);
    }
  }

  void ready(std::size_t b) {
    Bucket& bucket = buckets_[b];
    bucket.missing = 0;
    if (bucket.owner == world_.rank()) {
      receiver_->own_ready(bucket.own);
    } else {
      sent_.push_back(
          world_.send(gradients_.narrow(0, bucket.begin, bucket.end - bucket.begin), bucket.owner, tag_of(bucket)));
    }
  }

  // Until what was computed last has gone everywhere.
  void settle() {
    receiver_->finish();
    for (parallel::Transfer& transfer : sent_) {
      transfer.wait();
    }
    sent_.clear();
  }

  // Gradients that no micro-batch had are zeros, as with one process.
  void discard_absent(const std::vector<StepMessage>& all) {
    const std::vector<at::Tensor> mine = gradients();
    for (std::size_t k = 0; k < owned_.size(); ++k) {
      const std::size_t i = owned_[k];
      if (std::none_of(all.begin(), all.end(), [i](const StepMessage& m) { return m.present[i]; })) {
        mine[k].zero_();
      }
    }
  }

  Gathered add_up(std::vector<StepMessage>& all) const {
    std::vector<Report*> order(static_cast<std::size_t>(sums_ * micro_batches_));
    Gathered step;
    for (StepMessage& message : all) {
      step.stop = step.stop || message.stop;
      for (Report& report : message.reports) {
        order[static_cast<std::size_t>(report.micro_batch)] = &report;
      }
    }
    bool first = true;
    for (Report* report : order) {
      step.loss = first ? report->cross_entropy.item<double>() : step.loss + report->cross_entropy.item<double>();
      first = false;
      for (auto& [name, update] : report->updates) {
        update.buffer = buffers_.at(name);
        nn::report(step.updates, name, update);
      }
    }
    first = true;
    for (const Report* report : order) {
      if (report->regulariser.defined()) {
        const double value = report->regulariser.item<double>();
        step.regulariser = first ? value : step.regulariser + value;
        first = false;
      }
    }
    step.gradient_norm = norm_of(all);
    return step;
  }

  // Squares in the order of the parameters, whoever owns them.
  double norm_of(const std::vector<StepMessage>& all) const {
    std::vector<std::size_t> next(all.size(), 0);
    double sum = 0.0;
    for (const Place& place : places_) {
      const auto owner = static_cast<std::size_t>(buckets_[place.bucket].owner);
      sum += all[owner].squares.at(next[owner]++);
    }
    return std::sqrt(sum);
  }

  nn::Parameters& parameters_;
  parallel::World& world_;
  config::TrainOptions options_;
  std::int64_t sums_, micro_batches_;  // a step; a sum
  std::vector<Part> parts_;            // of this process, a round each
  std::int64_t rounds_, round_ = 0;
  std::vector<Place> places_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  // of each owner in the blocks
  std::int64_t own_begin_ = 0, own_end_ = 0;
  std::map<std::string, at::Tensor> buffers_;  // by name
  std::vector<Receiver::Bucket> own_buckets_;
  std::vector<std::size_t> owned_;
  at::Tensor values_, gradients_;  // blocks of all parameters
  std::vector<bool> present_;      // parameters that had a gradient in this step
  bool reporting_ = false;
  std::vector<parallel::Transfer> sent_;
  bool verifies_ = false;  // this step, and its first part has not been hashed yet
  StepMessage message_;    // of this step
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace

std::unique_ptr<Exchange> ordered_exchange(models::Model& model, const config::TrainOptions& options,
                                           parallel::World& world, const Shares& shares) {
  return std::make_unique<OrderedExchange>(model, options, world, shares);
}

}  // namespace headroom::train
