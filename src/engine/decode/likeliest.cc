#include "likeliest.h"

#include <algorithm>

namespace headroom::decode {

TokenScore score_of(std::int64_t token, std::span<const float> log_p, std::int64_t count) {
  const auto value = [&](std::int64_t id) { return log_p[static_cast<std::size_t>(id)]; };
  const auto likelier = [&](std::int64_t a, std::int64_t b) {
    if (value(a) != value(b)) {
      return value(a) > value(b);
    }
    return a != b && (a == token || (b != token && a < b));
  };
  // The best so far, in their order: few are asked for, and most tokens are less likely than the last of them.
  std::vector<std::int64_t> best;
  for (std::int64_t id = 0; id < std::ssize(log_p) && count > 0; ++id) {
    if (std::ssize(best) == count) {
      if (!likelier(id, best.back())) {
        continue;
      }
      best.pop_back();
    }
    best.insert(std::upper_bound(best.begin(), best.end(), id, likelier), id);
  }
  TokenScore score{.logprob = value(token), .top = {}};
  for (const std::int64_t id : best) {
    score.top.push_back({id, value(id)});
  }
  return score;
}

}  // namespace headroom::decode
