// Row-major views of matrices, scratch memory for kernels, and transposition.
#pragma once

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

namespace headroom::kernels {

using c10::BFloat16;

// A matrix with contiguous rows; row i begins at data + i * stride. Does not own the memory.
template <class T>
struct Strided {
  T* data;
  std::int64_t stride;
};

// Rows of either element type: one of the pointers is null, both if there is no tensor.
template <class Float, class Bfloat>
struct RowsOf {
  Float* f32 = nullptr;
  Bfloat* bf16 = nullptr;
  std::int64_t stride = 0;

  RowsOf() = default;
  RowsOf(Float* data, std::int64_t row_stride) : f32(data), stride(row_stride) {}
  RowsOf(Bfloat* data, std::int64_t row_stride) : bf16(data), stride(row_stride) {}
  template <class T>
  RowsOf(Strided<T> rows) : RowsOf(rows.data, rows.stride) {}  // NOLINT(google-explicit-constructor)

  RowsOf from(std::int64_t i) const { return ahead(i * stride); }
  RowsOf ahead(std::int64_t n) const {
    RowsOf to = *this;
    to.f32 += f32 == nullptr ? 0 : n;
    to.bf16 += bf16 == nullptr ? 0 : n;
    return to;
  }
  // body(Strided<Float>) or body(Strided<Bfloat>)
  template <class Body>
  void visit(const Body& body) const {
    bf16 == nullptr ? body(Strided<Float>{f32, stride}) : body(Strided<Bfloat>{bf16, stride});
  }
};
using Rows = RowsOf<const float, const BFloat16>;
using RowsOut = RowsOf<float, BFloat16>;

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
