#include "step_message.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/ops/optimizers.h"

namespace headroom::train {
namespace {

class Packer {
 public:
  template <class T>
  void number(const T& value) {
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
  template <class List>
  void resize(const List& list) {
    number(list.size());
  }
  template <class Map, class Visit>
  void entries(const Map& map, const Visit& visit_entry) {
    number(map.size());
    for (const auto& [name, value] : map) {
      visit_entry(name, value);
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& text) : text_(text) {}

  template <class T>
  void number(T& value) {
    std::memcpy(&value, take(sizeof value), sizeof value);
  }
  void string(std::string& value) {
    std::size_t size = 0;
    number(size);
    value.assign(take(size), size);
  }
  void tensor(at::Tensor& value) {
    if (!next<bool>()) {
      return;
    }
    const auto type = static_cast<at::ScalarType>(next<std::int8_t>());
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(next<std::int64_t>()));
    for (std::int64_t& size : sizes) {
      number(size);
    }
    value = at::empty(sizes, type);
    std::memcpy(value.mutable_data_ptr(), take(value.nbytes()), value.nbytes());
  }
  template <class List>
  void resize(List& list) {
    list.resize(next<std::size_t>());
  }
  template <class Map, class Visit>
  void entries(Map& map, const Visit& visit_entry) {
    for (auto left = next<std::size_t>(); left > 0; --left) {
      std::pair<typename Map::key_type, typename Map::mapped_type> entry;
      visit_entry(entry.first, entry.second);
      map.insert(std::move(entry));
    }
  }

 private:
  template <class T>
  T next() {
    T value{};
    number(value);
    return value;
  }
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

// Passes every field of the message to the archive, in a fixed order.
template <class Archive, class Message>
void visit(Archive& archive, Message& message) {
  archive.resize(message.reports);
  for (auto& report : message.reports) {
    archive.number(report.micro_batch);
    archive.tensor(report.cross_entropy);
    archive.tensor(report.regulariser);
    archive.entries(report.updates, [&archive](auto& name, auto& update) {
      archive.string(name);
      archive.tensor(update.sum);
      archive.tensor(update.count);
      archive.number(update.epsilon);
    });
  }
  archive.resize(message.squares);
  for (auto& square : message.squares) {
    archive.number(square);
  }
  archive.resize(message.has_gradient);
  for (auto& present : message.has_gradient) {
    archive.number(present);
  }
  archive.number(message.stop);
  archive.string(message.own_hash);
  archive.string(message.next_hash);
}

}  // namespace

std::string to_text(const StepMessage& message) {
  Packer out;
  visit(out, message);
  return out.text();
}

StepMessage from_text(const std::string& text) {
  Unpacker in(text);
  StepMessage message;
  visit(in, message);
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
