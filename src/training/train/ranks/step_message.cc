#include "step_message.h"

#include <cstring>
#include <type_traits>

#include "headroom/core/error.h"

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
      fail("train: a message of another process is cut off: are they of one version?");
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
  for (const Report& report : message.reports) {
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
  out.number(message.present.size());
  for (const bool present : message.present) {
    out.number(present);
  }
  out.number(message.stop);
  out.string(message.own);
  out.string(message.next);
  return out.text();
}

StepMessage from_text(const std::string& text) {
  Unpacker in(text);
  StepMessage message;
  message.reports.resize(in.number<std::size_t>());
  for (Report& report : message.reports) {
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
  message.present.resize(in.number<std::size_t>());
  for (std::size_t i = 0; i < message.present.size(); ++i) {
    message.present[i] = in.number<bool>();
  }
  message.stop = in.number<bool>();
  message.own = in.string();
  message.next = in.string();
  return message;
}

std::optional<int> disagreement(const std::vector<StepMessage>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].next != all[(rank + 1) % all.size()].own) {
      return static_cast<int>(rank);
    }
  }
  return std::nullopt;
}

}  // namespace headroom::train
