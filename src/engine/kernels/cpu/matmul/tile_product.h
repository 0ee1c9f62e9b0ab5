// The small matrix multiplication inside the blocked kernels: ATen's micro-kernels (oneDNN brgemm) where the CPU has
// them, vector loops elsewhere.
#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace headroom::kernels {

// C [m, n] = A [m, k] B [k, n], or += if `add`. All row-major with the given row strides.
struct TileProduct {
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  bool add = false;
};
void tile_product(const TileProduct& shape, const float* a, const float* b, float* c);
// bfloat16 operands (bfloat16.h), accumulated in float32. B is packed in pairs of rows, ldb counts pairs, k is even.
void tile_product(const TileProduct& shape, const BFloat16* a, const BFloat16* b, float* c);

// Releases the hardware state that tile_product() may hold. Each thread calls it once when it has finished its tasks.
void tile_product_done();

// False if torch has no micro-kernels for this CPU or HEADROOM_TILE_PRODUCT=portable.
bool tile_product_uses_micro_kernels();

// "micro-kernels" or "vector loops".
const char* tile_product_target();

}  // namespace headroom::kernels
