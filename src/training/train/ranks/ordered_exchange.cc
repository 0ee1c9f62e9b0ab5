// Several processes (or several sums of gradients a step): each sum goes to the process that looks after the parameter,
// which adds the sums in the order of their micro-batches. So the result does not depend on how many processes there
// are, and with sums of one micro-batch each it is what autograd adds up by itself.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "exchange.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/ops/optimizers.h"
#include "layout.h"
#include "receiver.h"
#include "step_message.h"
#include "step_sums.h"
#include "training/cost/processes.h"
#include "training/parallel/block.h"

namespace headroom::train {
namespace {

// Tags above those of buckets.
constexpr std::uint32_t kPublished = std::uint32_t{1} << 29, kMemory = kPublished + 2;

class OrderedExchange : public Exchange {
 public:
  OrderedExchange(models::Model& model, const config::TrainOptions& options, parallel::GlooGroup& world,
                  const Shares& shares)
      : parameters_(model.parameters()),
        world_(world),
        options_(options),
        sums_(sums_of(options)),
        micro_batches_(options.accumulate / sums_),
        parts_(parts_of(options, world.rank(), world.size())),
        rounds_(std::ssize(parts_)),
        layout_(shares.pieces(), world.size()),
        missing_(layout_.buckets.size()),
        own_place_(layout_.buckets.size()),
        present_(parameters_.all().size()),
        here_(parameters_.all().size()) {
    if (!model.device().is_cpu()) {
      user_error(
          "train.device: must be \"cpu\" where gradients are added in order (several processes, train.parts), got {}",
          model.device().str());
    }
    for (const nn::Parameter& made : parameters_.made()) {
      if (made.buffer) {
        buffers_.emplace(made.name, made.tensor);
      }
    }
    hears_.resize(static_cast<std::size_t>(world.size()));
    move_into_blocks();
    take_share(Share(shares, world.rank()).pieces(parameters_));
    receiver_ = std::make_unique<Receiver>(world, Receiver::Work{.gradients = gradients_,
                                                                 .added = tag_of_added(),
                                                                 .buckets = own_buckets_,
                                                                 .sums = sums_,
                                                                 .running = running_});
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
    compute(parts_of(options_, next, n).front(), theirs);
    fill_absent();
    message_.next = hash_of_gradients();
    std::fill(present_.begin(), present_.end(), false);
    verifies_ = true;
  }

  std::vector<Part> parts() const override { return parts_; }

  void begin(const Part& /*part*/) override {
    settle();
    receiver_->start(round_++);
  }

  void last_backward() override {
    for (std::size_t b = 0; b < missing_.size(); ++b) {
      missing_[b] = layout_.buckets[b].parameters;
    }
    reporting_ = !verifies_;  // what is to be hashed must lie there whole
  }

  void end(const Part& part) override {
    reporting_ = false;
    if (part.first == part.end) {
      return;
    }
    fill_absent();
    if (std::exchange(verifies_, false)) {
      message_.own = hash_of_gradients();
    }
    for (std::size_t b = 0; b < missing_.size(); ++b) {
      if (missing_[b] > 0) {
        ready(b);
      }
    }
  }

  Gathered gather(std::vector<Report> mine) override {
    settle();
    round_ = 0;
    message_.reports = std::move(mine);
    message_.squares = squares();
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
    Gathered step = add_reports(all, options_.accumulate, buffers_);
    step.gradient_norm = gradient_norm(all, layout_);
    return step;
  }

  const std::vector<Piece>& owned() const override { return owned_; }

  std::vector<at::Tensor> gradients() override {
    std::vector<at::Tensor> all;
    for (std::size_t k = 0; k < owned_.size(); ++k) {
      const Piece& piece = owned_[k];
      const at::Tensor& whole = parameters_.all()[piece.tensor].tensor;
      const at::Tensor flat =
          running_.defined()
              ? running_.narrow(0, sums_of_owned_[k], piece.count())
              : gradients_->numbers().narrow(0, layout_.places[piece.tensor].begin + piece.begin, piece.count());
      all.push_back(is_whole(piece, whole) ? flat.view(whole.sizes()) : flat);
    }
    return all;
  }

  void publish(bool moved) override {
    if (!moved) {
      return;
    }
    std::vector<parallel::Transfer> sent;
    std::vector<std::pair<at::Tensor, parallel::Block::Incoming>> coming;
    for (const Layout::Run& run : layout_.runs) {
      const parallel::Block::Range range{.begin = run.begin, .end = run.end};
      if (run.owner != world_.rank()) {
        const at::Tensor place = values_->numbers().narrow(0, range.begin, range.count());
        coming.emplace_back(place, values_->receive(range, run.owner, place));
        continue;
      }
      for (int peer = 0; peer < world_.size(); ++peer) {
        if (peer != world_.rank()) {
          sent.push_back(values_->send(range, peer));
        }
      }
    }
    // Whoever is read moves nothing before the next gather, to which this process comes later.
    for (auto& [place, incoming] : coming) {
      incoming.wait();
      incoming.take(0, place);
    }
    for (parallel::Transfer& transfer : sent) {
      transfer.wait();
    }
  }

 private:
  struct Arrived : torch::autograd::PostAccumulateGradHook {
    Arrived(OrderedExchange& of, std::size_t i) : exchange(of), parameter(i) {}
    void operator()(const at::Tensor& /*tensor*/) override { exchange.arrived(parameter); }
    OrderedExchange& exchange;
    std::size_t parameter;
  };

  std::string hash_of_gradients() const {
    Sha256 hash;
    const at::Tensor& all = gradients_->numbers();
    hash.update(std::span(static_cast<const std::byte*>(all.const_data_ptr()), all.nbytes()));
    return hash.hex();
  }

  // What this process adds up, in the order that it becomes ready.
  void take_share(const std::vector<Piece>& own) {
    std::vector<std::int64_t> sums(missing_.size(), 0);  // where those of the own buckets begin
    std::int64_t numbers = 0;
    std::vector<std::size_t> buckets;
    for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
      if (const Layout::Bucket& bucket = layout_.buckets[b]; bucket.owner == world_.rank()) {
        buckets.push_back(b);
        sums[b] = numbers;
        numbers += bucket.end - bucket.begin;
      }
    }
    std::stable_sort(buckets.begin(), buckets.end(), [this](std::size_t a, std::size_t b) {
      return layout_.buckets[a].last > layout_.buckets[b].last;
    });
    for (const std::size_t b : buckets) {
      own_place_[b] = own_buckets_.size();
      own_buckets_.push_back({.range = range_of(b), .sum = sums[b]});
    }
    running_ = rounds_ > 1 ? at::empty({numbers}) : at::Tensor();
    for (const Piece& piece : own) {
      const std::int64_t begin = layout_.places[piece.tensor].begin + piece.begin;
      const std::size_t b = layout_.bucket_at(piece.tensor, begin);
      owned_.push_back(piece);
      sums_of_owned_.push_back(sums[b] + begin - layout_.buckets[b].begin);
    }
  }

  parallel::Block::Range range_of(std::size_t b) const {
    const Layout::Bucket& bucket = layout_.buckets[b];
    return {.begin = bucket.begin, .end = bucket.end, .tag = static_cast<std::uint32_t>(b)};
  }

  std::uint32_t tag_of_added() const { return static_cast<std::uint32_t>(layout_.buckets.size()); }

  void move_into_blocks() {
    const at::NoGradGuard no_grad;
    const std::vector<nn::Parameter>& all = parameters_.all();
    values_ = std::make_unique<parallel::Block>(
        world_, parallel::Block::Shape{.numbers = layout_.numbers, .tags = 1, .first_tag = kPublished});
    gradients_ = std::make_shared<parallel::Block>(
        world_, parallel::Block::Shape{.numbers = layout_.numbers, .tags = tag_of_added() + 1, .first_tag = 0});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const at::Tensor& parameter = all[i].tensor;
      const at::Tensor value = place_in(*values_, i);
      value.copy_(parameter);
      parameter.set_data(value);
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Arrived>(*this, i));
    }
  }

  at::Tensor place_in(const parallel::Block& block, std::size_t parameter) const {
    return block.numbers()
        .narrow(0, layout_.places[parameter].begin, layout_.places[parameter].count)
        .view(parameters_.all()[parameter].tensor.sizes());
  }

  // A gradient is moved to its place rather than added to zeros there.
  void arrived(std::size_t parameter) {
    at::Tensor& gradient = parameters_.all()[parameter].tensor.mutable_grad();
    const at::Tensor place = place_in(*gradients_, parameter);
    const at::NoGradGuard no_grad;
    here_[parameter] ? place.add_(gradient) : place.copy_(gradient);
    gradient.reset();
    here_[parameter] = present_[parameter] = true;
    const Layout::Place& there = layout_.places[parameter];
    for (std::size_t b = there.first_bucket; reporting_ && b < there.end_bucket; ++b) {
      if (--missing_[b] == 0) {
        ready(b);
      }
    }
  }

  // What a part has no gradient of becomes what adding it changes nothing of, zeros of either sign included.
  void fill_absent() {
    for (std::size_t i = 0; i < here_.size(); ++i) {
      if (!here_[i]) {
        place_in(*gradients_, i).fill_(-0.0);
      }
    }
    std::fill(here_.begin(), here_.end(), false);
  }

  void ready(std::size_t b) {
    missing_[b] = 0;
    const int owner = layout_.buckets[b].owner;
    if (owner == world_.rank()) {
      receiver_->own_ready(own_place_[b]);
      return;
    }
    sent_.push_back(gradients_->send(range_of(b), owner));
    if (gradients_->is_read(owner) && !hears_[static_cast<std::size_t>(owner)]) {
      hears_[static_cast<std::size_t>(owner)] = true;
      added_.push_back(gradients_->hear(tag_of_added(), owner));
    }
  }

  // Until what was computed last has gone everywhere.
  void settle() {
    receiver_->finish();
    for (parallel::Transfer& transfer : sent_) {
      transfer.wait();
    }
    sent_.clear();
    for (parallel::Block::Incoming& heard : added_) {
      heard.wait();
    }
    added_.clear();
    std::fill(hears_.begin(), hears_.end(), false);
  }

  // Gradients that no micro-batch had are zeros, as with one process.
  void discard_absent(const std::vector<StepMessage>& all) {
    const std::vector<at::Tensor> mine = gradients();
    for (std::size_t k = 0; k < owned_.size(); ++k) {
      const std::size_t i = owned_[k].tensor;
      if (std::none_of(all.begin(), all.end(), [i](const StepMessage& m) { return m.present[i]; })) {
        mine[k].zero_();
      }
    }
  }

  // Of the own pieces: of a whole tensor one, of others those that its one is the sum of.
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
  parallel::GlooGroup& world_;
  config::TrainOptions options_;
  std::int64_t sums_, micro_batches_;  // a step; a sum
  std::vector<Part> parts_;            // of this process, a round each
  std::int64_t rounds_, round_ = 0;
  Layout layout_;
  std::vector<std::int64_t> missing_;          // by bucket: parameters whose gradients of this part have not come
  std::vector<std::size_t> own_place_;         // by bucket: its place among the own ones
  std::map<std::string, at::Tensor> buffers_;  // by name
  std::vector<Receiver::Bucket> own_buckets_;
  std::vector<Piece> owned_;
  std::vector<std::int64_t> sums_of_owned_;     // where their sums begin in running_
  std::unique_ptr<parallel::Block> values_;     // of all parameters
  std::shared_ptr<parallel::Block> gradients_;  // likewise
  at::Tensor running_;  // the sums of all rounds so far, of the own range; undefined: they are in the block
  std::vector<bool> present_, here_;  // parameters that had a gradient in this step; in this part
  std::vector<bool> hears_;           // by owner: it is read there, and will say when it has been added
  bool reporting_ = false;
  std::vector<parallel::Transfer> sent_;
  std::vector<parallel::Block::Incoming> added_;  // said by those that read
  bool verifies_ = false;                         // this step, and its first part has not been hashed yet
  StepMessage message_;                           // of this step
  std::unique_ptr<Receiver> receiver_;
};

}  // namespace

std::unique_ptr<Exchange> ordered_exchange(models::Model& model, const config::TrainOptions& options,
                                           parallel::GlooGroup& world, const Shares& shares) {
  return std::make_unique<OrderedExchange>(model, options, world, shares);
}

}  // namespace headroom::train
