// The tensors of safetensors files as torch has them.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "headroom/core/safetensors.h"

namespace headroom::store {

// Throws Error naming the tensor for types that are not stored.
DType stored_type(at::ScalarType type, const std::string& name);

// A view of the mapped file, which lives as long as the tensor: read it, never write to it. A copy where the bytes lie
// askew. Throws UserError naming file and tensor for a type that torch lacks.
at::Tensor view_of(const std::shared_ptr<const SafetensorsFile>& file, const std::string& name,
                   const StoredTensor& stored);

std::span<const std::byte> bytes_of(const at::Tensor& tensor);  // contiguous, on the CPU

}  // namespace headroom::store
