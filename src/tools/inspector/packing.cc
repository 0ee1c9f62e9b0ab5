#include "packing.h"

#include <ATen/core/grad_mode.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "headroom/core/error.h"

namespace headroom::inspector {
namespace {

constexpr std::array<std::int64_t, 5> kLevels = {32767, 127, 63, 31, 15};  // finest first
constexpr std::int64_t kOneByte = 127;                                     // more levels need two bytes
constexpr std::int64_t kBestRatio = 24;  // assumed upper bound of the compression ratio
constexpr std::int64_t kSquare = 16;     // side of the background's squares, in values
constexpr double kBytesPerPeak = 2.2;    // estimated, compressed

std::string int32_bytes(std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  return {reinterpret_cast<const char*>(&narrow), sizeof narrow};
}

at::Tensor square_root(const at::Tensor& p, const at::Tensor& scale) {
  const at::Tensor share = p / scale.masked_fill(scale.eq(0.0), 1.0);
  return share.sign() * share.abs().sqrt();
}

at::Tensor quantised(const at::Tensor& root, std::int64_t levels) {
  return (root * static_cast<double>(levels)).round().to(at::kInt);
}

std::string pack_levels(const at::Tensor& root, const at::Tensor& scale, const at::Tensor& visible,
                        std::int64_t levels) {
  const at::Tensor n = quantised(root.masked_select(visible), levels);
  std::string bytes = int32_bytes(levels) + bytes_of(scale, at::kFloat);
  if (levels > kOneByte) {
    bytes += bytes_of(n.bitwise_and(0xff), at::kByte);
    bytes += bytes_of(n.bitwise_right_shift(8), at::kChar);
  } else {
    bytes += bytes_of(n, at::kChar);
  }
  return zlib_compressed(bytes);
}

// Returns the mean of each square over the entries where `counts` is 1.
at::Tensor background(const at::Tensor& p, const at::Tensor& counts) {
  const std::int64_t t = p.size(0), more = (kSquare - t % kSquare) % kSquare;
  const auto sums = [&](const at::Tensor& all) {
    const at::Tensor padded = at::constant_pad_nd(all.to(at::kFloat), {0, more, 0, more});
    return padded.unflatten(1, {-1, kSquare}).unflatten(0, {-1, kSquare}).sum({1, 3});
  };
  return sums(p * counts) / sums(counts).clamp_min(1.0);
}

std::string pack_peaks(const at::Tensor& p, const at::Tensor& root, const at::Tensor& scale, const at::Tensor& visible,
                       std::int64_t k) {
  const at::Tensor size = p.abs().masked_fill(visible.logical_not(), -1.0);
  const at::Tensor columns = std::get<0>(std::get<1>(size.topk(k, -1)).sort(-1));
  const at::Tensor real = visible.gather(1, columns);  // false for the padding of rows with fewer than k values
  const at::Tensor steps = at::cat({columns.narrow(1, 0, 1), columns.diff(1, 1)}, 1);
  const at::Tensor rest = background(p, visible.scatter(1, columns, false));
  const at::Tensor most = rest.abs().max();
  return zlib_compressed(
      int32_bytes(0) + bytes_of(scale, at::kFloat) + int32_bytes(k) + uint16_bytes(steps.masked_select(real)) +
      bytes_of(quantised(root.gather(1, columns).masked_select(real), kOneByte), at::kChar) + int32_bytes(kSquare) +
      bytes_of(most, at::kFloat) + bytes_of(quantised(square_root(rest, most), kOneByte), at::kChar));
}

}  // namespace

std::string bytes_of(const at::Tensor& tensor, at::ScalarType type) {
  const at::Tensor dense = tensor.detach().to(at::kCPU).to(type).contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), static_cast<std::size_t>(dense.nbytes())};
}

std::string uint16_bytes(const at::Tensor& tensor) {
  return bytes_of(tensor, at::kShort);
}

std::string zlib_compressed(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string packed(size, '\0');
  const int status =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                static_cast<uLong>(bytes.size()), Z_DEFAULT_COMPRESSION);
  if (status != Z_OK) {
    fail("inspector: compressing {} bytes failed with zlib status {}", bytes.size(), status);
  }
  packed.resize(size);
  return packed;
}

std::string pack_map(const at::Tensor& map, std::int64_t bytes, bool causal) {
  const at::NoGradGuard no_grad;
  const std::int64_t t = map.size(0), after = causal ? 0 : t;
  const at::Tensor p = map.to(at::kCPU, at::kFloat).tril(after);
  const at::Tensor scale = p.abs().amax(1), root = square_root(p, scale.unsqueeze(1));
  const at::Tensor visible = at::ones({t, t}, at::kBool).tril(after);
  const auto n_visible = visible.sum().item<std::int64_t>();
  for (const std::int64_t levels : kLevels) {
    const std::int64_t raw = n_visible * (levels > kOneByte ? 2 : 1);
    if (raw / kBestRatio > bytes) {
      continue;
    }
    const std::string packed = pack_levels(root, scale, visible, levels);
    if (std::ssize(packed) <= bytes) {
      return packed;
    }
  }
  const double room = static_cast<double>(bytes) / (kBytesPerPeak * static_cast<double>(t));
  return pack_peaks(p, root, scale, visible, std::clamp<std::int64_t>(static_cast<std::int64_t>(room), 1, t));
}

at::Tensor thumbnail(const at::Tensor& map, std::int64_t side) {
  const at::NoGradGuard no_grad;
  const at::Tensor p = map.to(at::kFloat).abs().unsqueeze(0).unsqueeze(0);
  const auto most = at::adaptive_max_pool2d(p, {std::min(side, map.size(0)), std::min(side, map.size(1))});
  return (std::get<0>(most)[0][0].clamp_max(1.0).sqrt() * 255.0).round().to(at::kByte);
}

}  // namespace headroom::inspector
