#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "inspector_data.h"
#include "packing.h"

namespace headroom::inspect {
namespace {

constexpr std::array<std::int64_t, 5> kLevels = {32767, 127, 63, 31, 15};  // finest first
constexpr std::int64_t kOneByte = 127;                                     // more levels need two
constexpr std::int64_t kWorthTrying = 24;  // no map is compressed to less than this part of it
constexpr std::int64_t kSquare = 16;       // values of a side of the background's squares
constexpr double kBytesOfAPeak = 2.2;      // about, compressed

std::string number(std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  return {reinterpret_cast<const char*>(&narrow), sizeof narrow};
}

at::Tensor square_root(const at::Tensor& p, const at::Tensor& scale) {
  const at::Tensor share = p / scale.masked_fill(scale.eq(0.0), 1.0);
  return share.sign() * share.abs().sqrt();
}

at::Tensor in_levels(const at::Tensor& root, std::int64_t levels) {
  return (root * static_cast<double>(levels)).round().to(at::kInt);
}

std::string with_levels(const at::Tensor& root, const at::Tensor& scale, const at::Tensor& seen, std::int64_t levels) {
  const at::Tensor n = in_levels(root.masked_select(seen), levels);
  std::string bytes = number(levels) + bytes_of(scale, at::kFloat);
  if (levels > kOneByte) {
    bytes += bytes_of(n.bitwise_and(0xff), at::kByte);
    bytes += bytes_of(n.bitwise_right_shift(8), at::kChar);
  } else {
    bytes += bytes_of(n, at::kChar);
  }
  return compressed(bytes);
}

// The mean over each square of what is seen and not among the peaks.
at::Tensor background(const at::Tensor& p, const at::Tensor& counts) {
  const std::int64_t t = p.size(0), more = (kSquare - t % kSquare) % kSquare;
  const auto sums = [&](const at::Tensor& all) {
    const at::Tensor padded = at::constant_pad_nd(all.to(at::kFloat), {0, more, 0, more});
    return padded.unflatten(1, {-1, kSquare}).unflatten(0, {-1, kSquare}).sum({1, 3});
  };
  return sums(p * counts) / sums(counts).clamp_min(1.0);
}

std::string with_peaks(const at::Tensor& p, const at::Tensor& root, const at::Tensor& scale, const at::Tensor& seen,
                       std::int64_t k) {
  const at::Tensor size = p.abs().masked_fill(seen.logical_not(), -1.0);
  const at::Tensor places = std::get<0>(std::get<1>(size.topk(k, -1)).sort(-1));
  const at::Tensor real = seen.gather(1, places);  // what a short row lacks to k are places behind its query, its last
  const at::Tensor steps = at::cat({places.narrow(1, 0, 1), places.diff(1, 1)}, 1);
  const at::Tensor rest = background(p, seen.scatter(1, places, false));
  const at::Tensor most = rest.abs().max();
  return compressed(number(0) + bytes_of(scale, at::kFloat) + number(k) + small_numbers(steps.masked_select(real)) +
                    bytes_of(in_levels(root.gather(1, places).masked_select(real), kOneByte), at::kChar) +
                    number(kSquare) + bytes_of(most, at::kFloat) +
                    bytes_of(in_levels(square_root(rest, most), kOneByte), at::kChar));
}

}  // namespace

std::string pack_map(const at::Tensor& map, std::int64_t bytes, bool causal) {
  const at::NoGradGuard no_grad;
  const std::int64_t t = map.size(0), after = causal ? 0 : t;
  const at::Tensor p = map.to(at::kCPU, at::kFloat).tril(after);
  const at::Tensor scale = p.abs().amax(1), root = square_root(p, scale.unsqueeze(1));
  const at::Tensor seen = at::ones({t, t}, at::kBool).tril(after);
  const auto n_seen = seen.sum().item<std::int64_t>();
  for (const std::int64_t levels : kLevels) {
    const std::int64_t raw = n_seen * (levels > kOneByte ? 2 : 1);
    if (raw / kWorthTrying > bytes) {
      continue;
    }
    const std::string packed = with_levels(root, scale, seen, levels);
    if (std::ssize(packed) <= bytes) {
      return packed;
    }
  }
  const double room = static_cast<double>(bytes) / (kBytesOfAPeak * static_cast<double>(t));
  return with_peaks(p, root, scale, seen, std::clamp<std::int64_t>(static_cast<std::int64_t>(room), 1, t));
}

at::Tensor thumbnail(const at::Tensor& map, std::int64_t side) {
  const at::NoGradGuard no_grad;
  const at::Tensor p = map.to(at::kFloat).abs().unsqueeze(0).unsqueeze(0);
  const auto most = at::adaptive_max_pool2d(p, {std::min(side, map.size(0)), std::min(side, map.size(1))});
  return (std::get<0>(most)[0][0].clamp_max(1.0).sqrt() * 255.0).round().to(at::kByte);
}

}  // namespace headroom::inspect
