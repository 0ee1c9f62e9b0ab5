// Packs tensors and contributions for the inspector's page: little-endian arrays in zlib format, which JavaScript reads
// with DecompressionStream("deflate") and typed arrays.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "attribution.h"
#include "headroom/core/json.h"

namespace headroom::inspector {

// Returns the bytes of the tensor, converted to `type`.
std::string bytes_of(const at::Tensor& tensor, at::ScalarType type);
// Packs values from 0 to 2^16 - 1 in two bytes each; -1 becomes 0xffff.
std::string uint16_bytes(const at::Tensor& tensor);

// Packs an attention map [T, T] into about `bytes` bytes, lossily. Row i holds its first n(i) values: i + 1 if
// `causal`, else T. Each value q is stored as a quantised square root, so that small weights keep relative precision.
// Layout:
//   int32 levels; float32 analyse::shade_end() of the map; float32 [T] scale, the largest |value| of each row
//   levels > 0: all rows, q for each value; one byte, or all low bytes and then all high bytes if levels > 127
//       value = sign(q) scale_i (q / levels)^2
//   levels = 0, for maps that do not fit: int32 k; for the min(k, n(i)) largest values of each row:
//       the differences of their columns (uint16, the first from 0), then all q (one byte, 127 levels);
//       int32 side; float32 scale of the background; for each square of side x side values, row by row:
//       q (one byte, 127 levels) of the mean of the values in it that are not among the largest
std::string pack_map(const at::Tensor& map, std::int64_t bytes, bool causal = true);

// Returns the largest |value| p in each of side x side squares as uint8: 255 sqrt(p / shade_end()), at most 255.
at::Tensor thumbnail(const at::Tensor& map, std::int64_t side);

struct PackedContributions {
  std::string bytes;  // "contributions.l" as inspector.h describes it, not compressed
  // "contributions" (their number per token), "splits" ([{"name", "terms"}] of the decompositions), "score_terms" (of
  // composed scores), "residual" (the largest error of the sum)
  Json about;
};

// Packs the `most` largest contributions per token to an attention layer's output.
PackedContributions pack_contributions(const Attribution& a, std::int64_t most);

}  // namespace headroom::inspector
