#include <array>
#include <cmath>

#include "headroom/inspect/inspector_data.h"
#include "inspect/packing.h"

namespace headroom::inspect {
namespace {

constexpr std::array<std::int64_t, 8> kLevels = {32767, 127, 63, 31, 15, 7, 3, 1};
constexpr std::int64_t kTwoByteLevels = 127;  // more than these need two
constexpr std::int64_t kWorthTrying = 24;     // no map is compressed to less than this part of it

std::string with_levels(const at::Tensor& root, const at::Tensor& scale, const at::Tensor& seen, std::int64_t levels) {
  const at::Tensor n = (root * static_cast<double>(levels)).round().to(at::kInt).masked_select(seen);
  const std::int32_t count = static_cast<std::int32_t>(levels);
  std::string bytes(reinterpret_cast<const char*>(&count), sizeof count);
  bytes += bytes_of(scale, at::kFloat);
  if (levels > kTwoByteLevels) {
    bytes += bytes_of(n.bitwise_and(0xff), at::kByte);
    bytes += bytes_of(n.bitwise_right_shift(8), at::kChar);
  } else {
    bytes += bytes_of(n, at::kChar);
  }
  return compressed(bytes);
}

}  // namespace

std::string pack_map(const at::Tensor& map, std::int64_t bytes) {
  const at::NoGradGuard no_grad;
  const at::Tensor p = map.to(at::kFloat);
  const std::int64_t t = p.size(0), s = p.size(1);
  const at::Tensor scale = p.abs().amax(1);
  const at::Tensor share = p / scale.masked_fill(scale.eq(0.0), 1.0).unsqueeze(1);
  const at::Tensor root = share.sign() * share.abs().sqrt();
  const at::Tensor seen = at::ones({t, s}, at::kBool).tril(s - t);
  std::string packed;
  for (const std::int64_t levels : kLevels) {
    const bool last = levels == kLevels.back();
    if (!last && t * s * (levels > kTwoByteLevels ? 1 : 0) / kWorthTrying > bytes) {
      continue;
    }
    packed = with_levels(root, scale, seen, levels);
    if (std::ssize(packed) <= bytes) {
      break;
    }
  }
  return packed;
}

at::Tensor thumbnail(const at::Tensor& map, std::int64_t side) {
  const at::NoGradGuard no_grad;
  const at::Tensor p = map.to(at::kFloat).abs().unsqueeze(0).unsqueeze(0);
  const auto most = at::adaptive_max_pool2d(p, {std::min(side, map.size(0)), std::min(side, map.size(1))});
  return (std::get<0>(most)[0][0].clamp_max(1.0).sqrt() * 255.0).round().to(at::kByte);
}

}  // namespace headroom::inspect
