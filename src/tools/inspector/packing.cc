#include "packing.h"

#include <zlib.h>

#include "headroom/core/error.h"

namespace headroom::inspect {

std::string bytes_of(const at::Tensor& tensor, at::ScalarType type) {
  const at::Tensor dense = tensor.detach().to(at::kCPU).to(type).contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), static_cast<std::size_t>(dense.nbytes())};
}

std::string small_numbers(const at::Tensor& tensor) {
  return bytes_of(tensor, at::kShort);
}

std::string compressed(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string packed(size, '\0');
  const int status =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                static_cast<uLong>(bytes.size()), Z_DEFAULT_COMPRESSION);
  if (status != Z_OK) {
    fail("inspector: compressing {} bytes failed with status {}", bytes.size(), status);
  }
  packed.resize(size);
  return packed;
}

}  // namespace headroom::inspect
