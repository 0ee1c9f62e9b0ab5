// A sum over the bytes of every tensor in a checkpoint, so that damage shows before it is trained on.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <map>
#include <set>
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
// The CRC-32 of each whole tensor from those that all ranks hold, {"model.embed": "1f2e3d4c", ...} as JSON. `sizes` are
// the bytes of each tensor. Throws SharedError where a byte is held by no rank or by several.
std::string join_checksums(const std::vector<std::string>& parts, const std::map<std::string, std::size_t>& sizes);

// Throws UserError naming `origin` and the first tensor whose bytes do not have the sum that `stored`, the JSON
// above, has for it, and when `stored` lacks one or is no such JSON. Warns where the stored sum of a tensor of
// `buffers` is that of several copies of it, as earlier versions wrote it on several ranks.
void verify_checksums(const std::map<std::string, at::Tensor>& tensors, const std::set<std::string>& buffers,
                      const std::string& stored, const std::string& origin);

}  // namespace headroom::store
