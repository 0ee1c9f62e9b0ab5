// Row-major views of matrices, scratch memory for kernels, and transposition.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

namespace headroom::kernels {

// A matrix with contiguous rows; row i begins at data + i * stride. Does not own the memory.
template <class T>
struct Strided {
  T* data;
  std::int64_t stride;
};

// to[c][i] = from[i][c] for i in [0, rows), c in [0, columns). `from` and `to` must not overlap.
void transpose(Strided<const float> from, std::int64_t rows, std::int64_t columns, Strided<float> to);

// Scratch memory of a kernel, uninitialised and aligned to a cache line.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t n) { reserve(n); }

  // Makes room for n floats. Growing discards the contents.
  void reserve(std::int64_t n) {
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
