// A sum over the bytes of every tensor in a checkpoint, so that damage shows before it is trained on.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace headroom::store {

// Bytes of a tensor from `begin` on, contiguous on the CPU.
struct Held {
  std::string name;
  std::size_t begin = 0;
  at::Tensor bytes;
};

// CRC-32 of each as JSON, for join_checksums().
std::string checksums_of(const std::vector<Held>& held);
// Of what all processes hold: each whole tensor's CRC-32, {"model.embed": "1f2e3d4c", ...} as JSON.
std::string join_checksums(const std::vector<std::string>& parts);

// Throws MisuseError naming `origin` and the first tensor whose bytes do not have the sum that `stored`, the JSON
// above, has for it, and when `stored` lacks one or is no such JSON.
void verify_checksums(const std::map<std::string, at::Tensor>& tensors, const std::string& stored,
                      const std::string& origin);

}  // namespace headroom::store
