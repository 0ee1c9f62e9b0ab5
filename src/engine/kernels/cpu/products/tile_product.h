// The small matrix product under the blocked kernels: ATen's micro-kernels where the CPU has them, vector loops
// elsewhere.
#pragma once

#include <cstdint>

#include "bfloat16.h"

namespace headroom::kernels {

// C [m, n] = A [m, k] B [k, n], or += with `add`; all row-major with the given row strides.
struct TileProduct {
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  bool add = false;
};
void tile_product(const TileProduct& shape, const float* a, const float* b, float* c);
// The operands in bfloat16 (bfloat16.h), B in pairs of rows with ldb pairs each, k even; sums in float32.
void tile_product(const TileProduct& shape, const BFloat16* a, const BFloat16* b, float* c);

// Gives back the hardware state that tile_product() may hold; once at the end of each thread's share of work.
void tile_product_done();

// False where torch has no micro-kernels for the CPU, or HEADROOM_TILE_PRODUCT=portable asks for the vector loops.
bool tile_product_uses_micro_kernels();

// Which of the two, in words: "micro-kernels" or "vector loops".
const char* tile_product_target();

}  // namespace headroom::kernels
