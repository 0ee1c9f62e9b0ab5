// The part of a hash that names data.
#pragma once

#include <cstddef>
#include <string>

#include "headroom/core/files.h"

namespace headroom::data {

// The first digits of the sum, which this ends: enough to tell sets of data, and what is made from them, apart.
inline std::string dataset_id(Sha256& sum) {
  constexpr std::size_t kDigits = 16;
  return sum.hex().substr(0, kDigits);
}

}  // namespace headroom::data
