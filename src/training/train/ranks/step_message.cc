#include "step_message.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "headroom/core/error.h"
#include "headroom/ops/optimizers.h"

namespace headroom::train {
namespace {

class Packer {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(const std::string& value) {
    number(value.size());
    text_ += value;
  }
  void tensor(const at::Tensor& value) {
    number(value.defined());
    if (!value.defined()) {
      return;
    }
    const at::Tensor bytes = value.detach().cpu().contiguous();
    number(static_cast<std::int8_t>(bytes.scalar_type()));
    number(bytes.dim());
    for (const std::int64_t size : bytes.sizes()) {
      number(size);
    }
    text_.append(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& text) : text_(text) {}

  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string string() {
    const auto size = number<std::size_t>();
    return {take(size), size};
  }
  at::Tensor tensor() {
    if (!number<bool>()) {
      return {};
    }
    const auto type = static_cast<at::ScalarType>(number<std::int8_t>());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(number<std::int64_t>()));
    for (std::int64_t& size : sizes) {
      size = number<std::int64_t>();
    }
    const at::Tensor value = at::empty(sizes, type);
    std::memcpy(value.mutable_data_ptr(), take(value.nbytes()), value.nbytes());
    return value;
  }

 private:
  const char* take(std::size_t size) {
    if (size > text_.size() - at_) {
      fail("train: a message from another rank is truncated; do all ranks run the same version?");
    }
    const char* const from = text_.data() + at_;
    at_ += size;
    return from;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string to_text(const StepMessage& message) {
  Packer out;
  out.number(message.reports.size());
  for (const MicroBatchReport& report : message.reports) {
    out.number(report.micro_batch);
    out.tensor(report.cross_entropy);
    out.tensor(report.regulariser);
    out.number(report.updates.size());
    for (const auto& [name, update] : report.updates) {
      out.string(name);
      out.tensor(update.sum);
      out.tensor(update.count);
      out.number(update.epsilon);
    }
  }
  out.number(message.squares.size());
  for (const double square : message.squares) {
    out.number(square);
  }
  out.number(message.has_gradient.size());
  for (const bool present : message.has_gradient) {
    out.number(present);
  }
  out.number(message.stop);
  out.string(message.own_hash);
  out.string(message.next_hash);
  return out.text();
}

StepMessage from_text(const std::string& text) {
  Unpacker in(text);
  StepMessage message;
  message.reports.resize(in.number<std::size_t>());
  for (MicroBatchReport& report : message.reports) {
    report.micro_batch = in.number<std::int64_t>();
    report.cross_entropy = in.tensor();
    report.regulariser = in.tensor();
    for (auto updates = in.number<std::size_t>(); updates > 0; --updates) {
      std::string name = in.string();
      nn::BufferUpdate update;
      update.sum = in.tensor();
      update.count = in.tensor();
      update.epsilon = in.number<double>();
      report.updates.emplace(std::move(name), std::move(update));
    }
  }
  message.squares.resize(in.number<std::size_t>());
  for (double& square : message.squares) {
    square = in.number<double>();
  }
  message.has_gradient.resize(in.number<std::size_t>());
  for (std::size_t i = 0; i < message.has_gradient.size(); ++i) {
    message.has_gradient[i] = in.number<bool>();
  }
  message.stop = in.number<bool>();
  message.own_hash = in.string();
  message.next_hash = in.string();
  return message;
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

}  // namespace headroom::train
