#include "checksums.h"

#include <ATen/Parallel.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "headroom/core/error.h"
#include "headroom/core/json.h"

namespace headroom::store {
namespace {

// Pieces of a large tensor are summed side by side and their sums joined: the result is that of the whole.
std::string crc32_of(const at::Tensor& tensor) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 22;
  const auto* bytes = static_cast<const Bytef*>(tensor.const_data_ptr());
  const auto size = static_cast<std::int64_t>(tensor.nbytes()), pieces = (size + kPiece - 1) / kPiece;
  std::vector<uLong> sums(static_cast<std::size_t>(pieces));
  const auto length_of = [&](std::int64_t piece) { return std::min(kPiece, size - piece * kPiece); };
  at::parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      sums[static_cast<std::size_t>(piece)] =
          crc32_z(0, bytes + piece * kPiece, static_cast<z_size_t>(length_of(piece)));
    }
  });
  uLong sum = crc32_z(0, nullptr, 0);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    sum = crc32_combine(sum, sums[static_cast<std::size_t>(piece)], static_cast<z_off_t>(length_of(piece)));
  }
  return fmt::format("{:08x}", sum);
}

}  // namespace

std::string checksums_of(const std::map<std::string, at::Tensor>& tensors) {
  Json sums = Json::object();
  for (const auto& [name, tensor] : tensors) {
    sums[name] = crc32_of(tensor);
  }
  return to_json_line(sums);
}

void verify_checksums(const std::map<std::string, at::Tensor>& tensors, const std::string& stored,
                      const std::string& origin) {
  const Json sums = parse_json(stored, origin + ": checksums");
  for (const auto& [name, tensor] : tensors) {
    if (!sums.is_object() || !sums.contains(name) || !sums.at(name).is_string()) {
      misuse("{}: has no checksum of tensor \"{}\"", origin, name);
    }
    const std::string is = crc32_of(tensor.contiguous()), was = sums.at(name).get<std::string>();
    if (is != was) {
      misuse("{}: tensor \"{}\" is damaged: its checksum is {}, it was written with {}", origin, name, is, was);
    }
  }
}

}  // namespace headroom::store
