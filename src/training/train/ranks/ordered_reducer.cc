// Gradient reduction for several ranks, or several accumulators per step. Every rank sends its accumulators to the rank
// that owns the parameter, which sums them in the order of their micro-batches. The result therefore does not depend on
// the number of ranks, and with one micro-batch per accumulator it is bit-identical to autograd's own sum.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "gradient_reducer.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/ops/optimizers.h"
#include "step_message.h"

namespace headroom::train {
namespace {

// Tags above the bucket tags.
constexpr std::uint32_t kParametersTag = std::uint32_t{1} << 29, kMemoryTag = kParametersTag + 2;

class OrderedReducer : public GradientReducer {
 public:
  OrderedReducer(models::Model& model, const config::TrainOptions& options, parallel::GlooGroup& group)
      : parameters_(model.parameters()),
        group_(group),
        options_(options),
        accumulators_(parallel::accumulators_of(options)),
        micro_batches_(options.accumulate / accumulators_),
        ranges_(ranges_of(options, group.rank(), group.size())),
        rounds_(std::ssize(ranges_)),
        layout_(all_shards(parameters_, options.optimizer, group.size()), group.size()),
        own_index_(layout_.buckets.size()),
        missing_(layout_.buckets.size()),
        in_step_(parameters_.all().size()),
        in_round_(parameters_.all().size()) {
    if (!model.device().is_cpu()) {
      user_error("train.device: must be \"cpu\" with several ranks or with train.gradient_accumulators, got {}",
                 model.device().str());
    }
    for (const nn::Parameter& made : parameters_.in_creation_order()) {
      if (made.buffer) {
        buffers_.emplace(made.name, made.tensor);
      }
    }
    move_into_buffers();
    order_own_buckets(owned_shards(parameters_, options.optimizer, group));
    receiver_ = std::make_unique<Receiver>(
        group,
        Receiver::Work{
            .gradients = gradients_, .buckets = own_buckets_, .accumulators = accumulators_, .running = running_});
  }

  ~OrderedReducer() override {
    for (const nn::Parameter& parameter : parameters_.all()) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
    }
  }

  ReducedStep run(const StepPasses& passes) override {
    if (passes.verify && group_.size() > 1) {
      compute_for_next_rank(passes);
    }
    OwnPasses own(passes);
    for (const MicroBatchRange& range : ranges_) {
      at::Tensor loss = range.first < range.end ? own.forward(range.first) : at::Tensor();
      wait_for_round();  // here, so that the previous round's transfers overlap with this forward pass
      receiver_->start(round_++);
      for (std::int64_t i = range.first; i < range.end; ++i) {
        loss = i == range.first ? loss : own.forward(i);
        if (i + 1 == range.end) {
          expect_gradients();
        }
        loss.backward();
        loss.reset();
      }
      end_round(range);
    }
    ReducedStep step = gather(own.take_reports());
    step.memory = own.take_memory();
    return step;
  }

  const std::vector<Shard>& owned() const override { return owned_; }

  std::vector<at::Tensor> gradients() override {
    std::vector<at::Tensor> all;
    for (std::size_t k = 0; k < owned_.size(); ++k) {
      const Shard& shard = owned_[k];
      const at::Tensor& whole = parameters_.all()[shard.tensor].tensor;
      const at::Tensor flat =
          running_.defined() ? running_.narrow(0, running_begins_[k], shard.count())
                             : gradients_.narrow(0, layout_.places[shard.tensor].begin + shard.begin, shard.count());
      all.push_back(is_whole(shard, whole) ? flat.view(whole.sizes()) : flat);
    }
    return all;
  }

  void publish(bool updated) override {
    if (!updated) {
      return;
    }
    std::vector<parallel::Transfer> transfers;
    for (const Layout::OwnerRange& owned : layout_.owner_ranges) {
      const at::Tensor range = values_.narrow(0, owned.begin, owned.end - owned.begin);
      if (owned.owner != group_.rank()) {
        transfers.push_back(group_.receive(range, owned.owner, kParametersTag));
        continue;
      }
      for (int peer = 0; peer < group_.size(); ++peer) {
        if (peer != group_.rank()) {
          transfers.push_back(group_.send(range, peer, kParametersTag));
        }
      }
    }
    for (parallel::Transfer& transfer : transfers) {
      transfer.wait();
    }
  }

 private:
  struct GradientHook : torch::autograd::PostAccumulateGradHook {
    GradientHook(OrderedReducer& of, std::size_t i) : reducer(of), parameter(i) {}
    void operator()(const at::Tensor& /*tensor*/) override { reducer.add_gradient(parameter); }
    OrderedReducer& reducer;
    std::size_t parameter;
  };

  // Recomputes the next rank's first range, using that rank's memory, and hashes the gradients. All first ranges have
  // the same size, and their rows come first in the memory of each rank.
  void compute_for_next_rank(const StepPasses& passes) {
    const int n = group_.size(), next = (group_.rank() + 1) % n, previous = (group_.rank() + n - 1) % n;
    models::Memory theirs;
    std::vector<parallel::Transfer> transfers;
    for (const at::Tensor& layer : passes.memory.layers) {
      const at::Tensor mine = layer.narrow(0, 0, passes.rows * micro_batches_).contiguous();
      theirs.layers.push_back(at::empty_like(mine));
      transfers.push_back(group_.send(mine, previous, kMemoryTag));
      transfers.push_back(group_.receive(theirs.layers.back(), next, kMemoryTag));
    }
    for (parallel::Transfer& transfer : transfers) {
      transfer.wait();
    }
    wait_for_round();
    const MicroBatchRange range = ranges_of(options_, next, n).front();
    for (std::int64_t i = range.first; i < range.end; ++i) {
      models::Memory memory = theirs.narrow((i - range.first) * passes.rows, passes.rows);
      MicroBatchReport discarded{.micro_batch = i};
      passes.forward(memory, discarded).backward();
    }
    fill_missing_gradients();
    message_.next_hash = hash_of_gradients();
    std::fill(in_step_.begin(), in_step_.end(), false);
    verifies_ = true;
  }

  // Called before the last backward pass of a range: from then on, buckets are sent once their gradients are complete.
  void expect_gradients() {
    for (std::size_t b = 0; b < missing_.size(); ++b) {
      missing_[b] = layout_.buckets[b].parameters;
    }
    sending_ = !verifies_;  // hashing needs the complete buffer
  }

  void end_round(const MicroBatchRange& range) {
    sending_ = false;
    if (range.first == range.end) {
      return;
    }
    fill_missing_gradients();
    if (std::exchange(verifies_, false)) {
      message_.own_hash = hash_of_gradients();
    }
    for (std::size_t b = 0; b < missing_.size(); ++b) {
      if (missing_[b] > 0) {
        send_bucket(b);
      }
    }
  }

  ReducedStep gather(std::vector<MicroBatchReport> reports) {
    wait_for_round();
    round_ = 0;
    message_.reports = std::move(reports);
    message_.squares = squares();
    message_.has_gradient = in_step_;
    message_.stop = interrupted();
    std::vector<StepMessage> all = transformed(group_.gather(to_text(std::exchange(message_, {}))),
                                               [&](const std::string& text) { return from_text(text); });
    if (const std::optional<int> rank = disagreement(all)) {
      fail("train.verify_every: {} and {} computed different gradients of the same micro-batch; check both machines",
           group_.name_of(*rank), group_.name_of((*rank + 1) % group_.size()));
    }
    std::fill(in_step_.begin(), in_step_.end(), false);
    zero_unused_gradients(all);
    ReducedStep step = reduce_reports(all, options_.accumulate, buffers_);
    step.gradient_norm = gradient_norm(all, layout_);
    return step;
  }

  std::string hash_of_gradients() const {
    return sha256_of(std::span(static_cast<const std::byte*>(gradients_.const_data_ptr()), gradients_.nbytes()));
  }

  // Sorts this rank's buckets into the order in which their gradients become ready.
  void order_own_buckets(const std::vector<Shard>& own) {
    std::vector<std::int64_t> begins(missing_.size(), 0);  // offsets of this rank's buckets in running_
    std::int64_t elements = 0;
    std::vector<std::size_t> buckets;
    for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
      if (const Layout::Bucket& bucket = layout_.buckets[b]; bucket.owner == group_.rank()) {
        buckets.push_back(b);
        begins[b] = elements;
        elements += bucket.end - bucket.begin;
      }
    }
    std::ranges::stable_sort(
        buckets, [this](std::size_t a, std::size_t b) { return layout_.buckets[a].last > layout_.buckets[b].last; });
    for (const std::size_t b : buckets) {
      own_index_[b] = own_buckets_.size();
      own_buckets_.push_back(message_of(b));
      own_buckets_.back().running_begin = begins[b];
    }
    running_ = rounds_ > 1 ? at::empty({elements}) : at::Tensor();
    for (const Shard& shard : own) {
      const std::int64_t begin = layout_.places[shard.tensor].begin + shard.begin;
      const std::size_t b = layout_.bucket_at(shard.tensor, begin);
      owned_.push_back(shard);
      running_begins_.push_back(begins[b] + begin - layout_.buckets[b].begin);
    }
  }

  Receiver::Bucket message_of(std::size_t b) const {
    const Layout::Bucket& bucket = layout_.buckets[b];
    return {.begin = bucket.begin, .end = bucket.end, .tag = static_cast<std::uint32_t>(b)};
  }

  void move_into_buffers() {
    const at::NoGradGuard no_grad;
    const std::vector<nn::Parameter>& all = parameters_.all();
    values_ = at::zeros({layout_.elements});
    gradients_ = at::zeros({layout_.elements});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const at::Tensor& parameter = all[i].tensor;
      const at::Tensor value = place_in(values_, i);
      value.copy_(parameter);
      parameter.set_data(value);
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<GradientHook>(*this, i));
    }
  }

  at::Tensor place_in(const at::Tensor& buffer, std::size_t parameter) const {
    return buffer.narrow(0, layout_.places[parameter].begin, layout_.places[parameter].count)
        .view(parameters_.all()[parameter].tensor.sizes());
  }

  // Called by autograd. The first gradient of a range is copied to the buffer, because adding it to zeros could change
  // the sign of a zero.
  void add_gradient(std::size_t parameter) {
    at::Tensor& gradient = parameters_.all()[parameter].tensor.mutable_grad();
    const at::Tensor place = place_in(gradients_, parameter);
    const at::NoGradGuard no_grad;
    in_round_[parameter] ? place.add_(gradient) : place.copy_(gradient);
    gradient.reset();
    in_round_[parameter] = true;
    in_step_[parameter] = 1;
    const Layout::Place& buckets = layout_.places[parameter];
    for (std::size_t b = buckets.first_bucket; sending_ && b < buckets.end_bucket; ++b) {
      if (--missing_[b] == 0) {
        send_bucket(b);
      }
    }
  }

  // Missing gradients are filled with -0.0, the additive identity.
  void fill_missing_gradients() {
    for (std::size_t i = 0; i < in_round_.size(); ++i) {
      if (!in_round_[i]) {
        place_in(gradients_, i).fill_(-0.0);
      }
    }
    std::fill(in_round_.begin(), in_round_.end(), false);
  }

  // Sends a complete bucket to its owner.
  void send_bucket(std::size_t b) {
    missing_[b] = 0;
    const int owner = layout_.buckets[b].owner;
    if (owner == group_.rank()) {
      receiver_->set_own_ready(own_index_[b]);
      return;
    }
    const Receiver::Bucket message = message_of(b);
    sent_.push_back(group_.send(message.in(gradients_), owner, message.tag));
  }

  // Waits until this rank may change its gradients and has reduced its own shards of the previous round.
  void wait_for_round() {
    receiver_->finish();
    for (parallel::Transfer& transfer : sent_) {
      transfer.wait();
    }
    sent_.clear();
  }

  // Zeroes gradients that no micro-batch produced, as a single rank does.
  void zero_unused_gradients(const std::vector<StepMessage>& all) {
    const std::vector<at::Tensor> mine = gradients();
    for (std::size_t k = 0; k < owned_.size(); ++k) {
      const std::size_t i = owned_[k].tensor;
      if (std::ranges::none_of(all, [i](const StepMessage& m) { return m.has_gradient[i]; })) {
        mine[k].zero_();
      }
    }
  }

  // Returns sums of squares over the owned shards: one for a whole tensor, otherwise the partial sums that
  // gradient_norm() adds.
  std::vector<double> squares() {
    std::vector<double> all;
    const std::vector<at::Tensor> mine = gradients();
    for (std::size_t k = 0; k < owned_.size(); ++k) {
      const std::vector<double> blocks = is_whole(owned_[k], parameters_.all()[owned_[k].tensor].tensor)
                                             ? ops::square_sums({mine[k]})
                                             : ops::square_blocks(mine[k]);
      all.insert(all.end(), blocks.begin(), blocks.end());
    }
    return all;
  }

  nn::Parameters& parameters_;
  parallel::GlooGroup& group_;
  config::TrainOptions options_;
  std::int64_t accumulators_, micro_batches_;  // per step; per accumulator
  std::vector<MicroBatchRange> ranges_;        // of this rank, one per round
  std::int64_t rounds_, round_ = 0;
  Layout layout_;
  std::map<std::string, at::Tensor> buffers_;  // by name

  std::vector<Receiver::Bucket> own_buckets_;
  std::vector<std::size_t> own_index_;  // by bucket: its index in own_buckets_
  std::vector<Shard> owned_;
  std::vector<std::int64_t> running_begins_;  // by owned shard: its offset in running_

  at::Tensor values_, gradients_;  // of all parameters, flat
  // Sums of this rank's buckets over the rounds so far; undefined with one round, whose sums are in gradients_.
  at::Tensor running_;

  std::vector<std::int64_t> missing_;  // by bucket: number of parameters still without a gradient in this range
  std::vector<char> in_step_;          // by parameter: has had a gradient in this step
  std::vector<bool> in_round_;         // the same for this round
  bool sending_ = false;               // whether complete buckets are sent immediately
  std::vector<parallel::Transfer> sent_;
  bool verifies_ = false;  // the first range of this step has yet to be hashed
  StepMessage message_;    // of this step
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace

std::unique_ptr<GradientReducer> ordered_reducer(models::Model& model, const config::TrainOptions& options,
                                                 parallel::GlooGroup& group) {
  return std::make_unique<OrderedReducer>(model, options, group);
}

}  // namespace headroom::train
