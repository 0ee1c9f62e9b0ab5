#include "position_table.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

namespace headroom::nn {
namespace {

struct Known {
  std::int64_t first = 0, end = 0;
  at::Tensor rows;
};

// Positions that `known` has as well as [first, end); sequences that grow by a token do not ask each time.
Known extended(const Known& known, std::int64_t first, std::int64_t end) {
  if (!known.rows.defined()) {
    return {first, end, {}};
  }
  const std::int64_t n = known.end - known.first;
  return {first < known.first ? std::min(first, known.first - n) : known.first,
          end > known.end ? std::max(end, known.end + n) : known.end,
          {}};
}

}  // namespace

at::Tensor angles(const c10::SymInt& first, const c10::SymInt& n, std::int64_t count, std::int64_t width, double base) {
  const at::TensorOptions wide(at::kDouble);
  const at::Tensor frequency =
      at::pow(at::full({}, base, wide), at::arange(count, wide) * (-2.0 / static_cast<double>(width)));
  return at::arange(at::Scalar(first), at::Scalar(first + n), wide).unsqueeze(1) * frequency;
}

at::Tensor rows_of(const PositionTable& table, const c10::SymInt& first, const c10::SymInt& n,
                   const at::TensorOptions& options, bool traced) {
  if (traced) {
    return table.make(first, n, table.width, table.base).to(options);
  }
  const std::int64_t begin = first.expect_int(), end = begin + n.expect_int();
  using Key = std::tuple<decltype(table.make), std::int64_t, double, at::ScalarType, std::string>;
  static std::mutex mutex;
  static auto& tables = *new std::map<Key, Known>;  // outlives the libraries that the tensors need
  const std::lock_guard lock(mutex);
  Known& known =
      tables[{table.make, table.width, table.base, c10::typeMetaToScalarType(options.dtype()), options.device().str()}];
  if (!known.rows.defined() || begin < known.first || end > known.end) {
    known = extended(known, begin, end);
    const c10::InferenceMode usable_in_training(false);
    known.rows = table.make(known.first, known.end - known.first, table.width, table.base).to(options);
  }
  return known.rows.narrow(1, begin - known.first, end - begin);
}

}  // namespace headroom::nn
