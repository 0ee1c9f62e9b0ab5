// A sum over the bytes of every tensor in a checkpoint, so that damage shows before it is trained on.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

namespace headroom::store {

// CRC-32 of each tensor's bytes, contiguous on the CPU; {"model.embed": "1f2e3d4c", ...} as JSON.
std::string checksums_of(const std::map<std::string, at::Tensor>& tensors);

// Throws MisuseError naming `origin` and the first tensor whose bytes do not have the sum that `stored`, the JSON
// above, has for it, and when `stored` lacks one or is no such JSON.
void verify_checksums(const std::map<std::string, at::Tensor>& tensors, const std::string& stored,
                      const std::string& origin);

}  // namespace headroom::store
