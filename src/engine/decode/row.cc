#include "row.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/kernels/cpu/rows.h"
#include "headroom/core/error.h"

namespace headroom::decode {
namespace {

constexpr std::string_view kIndex = ".index";

}  // namespace

bool RouteRecorder::wants(std::string_view name) const {
  return name.ends_with(kIndex);
}

at::Tensor RouteRecorder::observe(std::string_view name, at::Tensor value) {
  name.remove_suffix(kIndex.size());
  auto found = std::ranges::find_if(indices_, [&](const auto& entry) { return entry.first == name; });
  if (found == indices_.end()) {
    found = indices_.insert(found, {std::string(name), {}});
  }
  found->second.push_back(value);
  return value;
}

std::vector<std::vector<TokenRoute>> RouteRecorder::of_last(std::int64_t n) const {
  std::vector<std::vector<TokenRoute>> tokens(static_cast<std::size_t>(n));
  for (const auto& [name, chunks] : indices_) {
    const at::Tensor all = at::cat(chunks), last = all.narrow(0, all.size(0) - n, n).cpu().contiguous();
    const std::int64_t heads = last.size(1), each = heads * last.size(2);
    const std::int64_t* from = last.const_data_ptr<std::int64_t>();
    for (std::vector<TokenRoute>& routes : tokens) {
      routes.push_back({.name = name, .n_heads = heads, .experts = {from, from + each}});
      from += each;
    }
  }
  return tokens;
}

namespace {

// Token ids in descending order of likelihood. Sorted lazily, because most draws need only a few.
class ByLikelihood {
 public:
  explicit ByLikelihood(std::span<const float> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }
  std::int32_t operator[](std::size_t rank) {
    while (rank >= sorted_) {
      sort_more();
    }
    return ids_[rank];
  }

 private:
  void sort_more() {
    const auto likelier = [&](std::int32_t a, std::int32_t b) {
      const float x = logits_[static_cast<std::size_t>(a)], y = logits_[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    };
    const std::size_t until = std::min(ids_.size(), std::max<std::size_t>(64, 4 * sorted_));
    const auto begin = ids_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto end = ids_.begin() + static_cast<std::ptrdiff_t>(until);
    if (end != ids_.end()) {
      std::nth_element(begin, end - 1, ids_.end(), likelier);
    }
    std::sort(begin, end, likelier);
    sorted_ = until;
  }

  std::span<const float> logits_;
  std::vector<std::int32_t> ids_;
  std::size_t sorted_ = 0;
};

}  // namespace

void check_sampling(const SampleOptions& o, std::string_view what) {
  if (!std::isfinite(o.temperature) || o.temperature < 0.0) {
    user_error("{}: temperature must be a number of at least 0, got {}", what, o.temperature);
  }
  if (o.top_k < 0) {
    user_error("{}: top_k must be at least 0 (0: all), got {}", what, o.top_k);
  }
  if (!(o.top_p > 0.0 && o.top_p <= 1.0)) {
    user_error("{}: top_p must be above 0 and at most 1, got {}", what, o.top_p);
  }
}

std::int32_t sample(std::span<const float> logits, const SampleOptions& options, Random& random) {
  const kernels::RowMaximum highest = kernels::row_maximum(logits.data(), std::ssize(logits));
  if (!highest.finite) {
    fail("the model's logits are not finite");
  }
  if (options.temperature == 0.0) {
    return static_cast<std::int32_t>(highest.index);
  }
  const double above = logits[static_cast<std::size_t>(highest.index)];
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - above) / options.temperature); };
  ByLikelihood ids(logits);
  const std::size_t kept =
      options.top_k == 0 ? logits.size() : std::min(logits.size(), static_cast<std::size_t>(options.top_k));
  const auto weight_at = [&](std::size_t rank) { return weight(logits[static_cast<std::size_t>(ids[rank])]); };
  double total = 0.0;  // unnormalised
  if (kept == logits.size()) {
    for (const float logit : logits) {
      total += weight(logit);
    }
  } else {
    for (std::size_t rank = 0; rank < kept; ++rank) {
      total += weight_at(rank);
    }
  }
  std::vector<double> cumulative;  // most likely first
  const auto cumulative_at = [&](std::size_t rank) {
    while (cumulative.size() <= rank) {
      cumulative.push_back((cumulative.empty() ? 0.0 : cumulative.back()) + weight_at(cumulative.size()));
    }
    return cumulative[rank];
  };
  // Keeps the fewest most likely tokens, at least one, whose mass reaches top_p. With top_p = 1 all are kept without
  // summing.
  double mass = total;
  std::size_t last = kept - 1;
  if (options.top_p < 1.0) {
    last = 0;
    while (last < kept - 1 && cumulative_at(last) < options.top_p * total) {
      ++last;
    }
    mass = cumulative_at(last);
  }
  const double drawn = random.uniform() * mass;
  std::size_t chosen = 0;
  while (chosen < last && cumulative_at(chosen) <= drawn) {
    ++chosen;
  }
  return ids[chosen];
}

TokenScore score_of(std::int64_t token, std::span<const float> log_p, std::int64_t count) {
  const auto value = [&](std::int64_t id) { return log_p[static_cast<std::size_t>(id)]; };
  const auto likelier = [&](std::int64_t a, std::int64_t b) {
    if (value(a) != value(b)) {
      return value(a) > value(b);
    }
    return a != b && (a == token || (b != token && a < b));
  };
  // The best tokens so far, sorted. `count` is small, and most tokens are less likely than the last one in the list.
  std::vector<std::int64_t> best;
  for (std::int64_t id = 0; id < std::ssize(log_p) && count > 0; ++id) {
    if (std::ssize(best) == count) {
      if (!likelier(id, best.back())) {
        continue;
      }
      best.pop_back();
    }
    best.insert(std::ranges::upper_bound(best, id, likelier), id);
  }
  TokenScore score{.logprob = value(token), .top = {}};
  for (const std::int64_t id : best) {
    score.top.push_back({id, value(id)});
  }
  return score;
}

}  // namespace headroom::decode
