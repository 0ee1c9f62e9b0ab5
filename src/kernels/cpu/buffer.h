// Memory of a kernel's own for numbers that are written before they are read: nobody zeroes it first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

namespace headroom::kernels::detail {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t n) { make_room(n); }

  // What it held is lost when it grows.
  void make_room(std::int64_t n) {
    if (n > size_) {
      data_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(n));
      size_ = n;
    }
  }
  void fill(float value) { std::fill_n(data_.get(), size_, value); }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

 private:
  std::unique_ptr<float[]> data_;
  std::int64_t size_ = 0;
};

}  // namespace headroom::kernels::detail
