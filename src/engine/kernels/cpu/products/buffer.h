// Memory of a kernel's own for numbers that are written before they are read: nobody zeroes it first. It begins with a
// cache line, so that vectors of a row do not straddle two.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

namespace headroom::kernels {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t n) { make_room(n); }

  // What it held is lost when it grows.
  void make_room(std::int64_t n) {
    if (n > size_) {
      data_.reset();
      data_.reset(static_cast<float*>(::operator new(static_cast<std::size_t>(n) * sizeof(float), kLine)));
      size_ = n;
    }
  }
  void fill(float value) { std::fill_n(data_.get(), size_, value); }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(float* data) const { ::operator delete(data, kLine); }
  };
  std::unique_ptr<float, Free> data_;
  std::int64_t size_ = 0;
};

}  // namespace headroom::kernels
