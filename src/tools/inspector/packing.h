// Tensors as bytes that a browser's typed arrays read, least significant first, and their compression.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <string_view>

namespace headroom::inspect {

// Raw numbers of the tensor after its conversion.
std::string bytes_of(const at::Tensor& tensor, at::ScalarType type);
// At least 0 and below 2^16, 2 bytes each; 0xffff for -1.
std::string small_numbers(const at::Tensor& tensor);

// In zlib's format, which DecompressionStream("deflate") reads.
std::string compressed(std::string_view bytes);

}  // namespace headroom::inspect
