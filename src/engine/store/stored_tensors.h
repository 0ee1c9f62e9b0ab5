// Converts the tensors of safetensors files to torch tensors, and computes their checksums.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headroom/core/safetensors.h"

namespace headroom::store {

// Throws Error naming the tensor if its type cannot be stored.
DType stored_type(at::ScalarType type, const std::string& name);

// Returns a read-only view of the mapped file, which stays open as long as the tensor lives; a copy if the bytes are
// misaligned. Throws UserError naming file and tensor for a type that torch lacks.
at::Tensor view_of(const std::shared_ptr<const SafetensorsFile>& file, const std::string& name,
                   const StoredTensor& stored);

std::span<const std::byte> bytes_of(const at::Tensor& tensor);  // contiguous, on the CPU

// A tensor, or this rank's part of it.
struct OwnedBytes {
  std::string name;
  std::size_t begin = 0;  // of the first byte in the whole tensor
  at::Tensor values;      // contiguous, on the CPU
};

// Returns the CRC-32 of each element of `owned` as JSON, for join_checksums().
std::string checksums_of(const std::vector<OwnedBytes>& owned);
// Returns the CRC-32 of each whole tensor as JSON, {"model.embed": "1f2e3d4c", ...}, from the checksums_of() of all
// ranks. `sizes` are in bytes. Throws SharedError unless each byte is owned by exactly one rank.
std::string join_checksums(const std::vector<std::string>& parts, const std::map<std::string, std::size_t>& sizes);

// Checks all tensors against `stored`, the JSON above. Throws UserError naming `origin` and the first tensor whose
// checksum is missing or does not match.
void verify_checksums(const std::map<std::string, at::Tensor>& tensors, const std::string& stored,
                      const std::string& origin);

}  // namespace headroom::store
