#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>

#include "attribution.h"

namespace headroom::inspect {
namespace {

// One term of a composition, of `count` queries from `begin` on: [H, count, S] to the same shape.
at::Tensor compose_by(const at::Tensor& map, const at::Tensor& pairs, std::int64_t begin) {
  if (map.dim() == 2) {
    return map.t().matmul(pairs.flatten(1)).view_as(pairs);
  }
  if (map.size(0) > 1 || map.size(1) == 1) {  // of the query
    const at::Tensor own = map.narrow(0, begin, pairs.size(1)).squeeze(1);
    return pairs.permute({1, 2, 0}).matmul(own).permute({2, 0, 1});
  }
  return pairs.permute({2, 1, 0}).matmul(map.squeeze(0)).permute({2, 1, 0});
}

at::Tensor compose_all(const std::optional<ComposedBy>& by, const at::Tensor& pairs, std::int64_t begin) {
  if (!by) {
    return pairs;
  }
  at::Tensor sum = at::zeros_like(pairs);
  for (const at::Tensor& map : by->maps) {
    sum = sum + compose_by(map, pairs, begin);
  }
  return sum;
}

at::Tensor terms_on(const ComposedBy& by, const at::Tensor& pairs, std::int64_t begin) {
  std::vector<at::Tensor> terms;
  for (const at::Tensor& map : by.maps) {
    terms.push_back(compose_by(map, pairs, begin));
  }
  return at::stack(terms);
}

// Which keys each of the queries sees, [count, S].
at::Tensor seen_keys(const Attribution& a, std::int64_t begin, std::int64_t count) {
  const std::int64_t s = a.n_sources(), before = s - a.n_queries();
  const at::Tensor query = at::arange(begin, begin + count, at::kLong).unsqueeze(1) + before;
  const at::Tensor key = at::arange(s, at::kLong).unsqueeze(0);
  at::Tensor sees = a.causal ? key.le(query) : at::ones({count, s}, at::kBool);
  return a.window > 0 ? sees.logical_and(key.gt(query - a.window)) : sees;
}

// The weights of other scores than the layer's, `full` being those that gave `probs`: a softmax with what its sum has
// beside the keys (a sink, an epsilon), which is what the weights lack to 1; or a sigmoid.
class Weighing {
 public:
  Weighing(const Attribution& a, const at::Tensor& full, const at::Tensor& probs, std::int64_t begin)
      : shares_(a.is_normalised), hidden_(seen_keys(a, begin, full.size(1)).logical_not()) {
    if (!shares_) {
      log_keys_ = hidden_.logical_not().sum(-1, /*keepdim=*/true).clamp_min(1).to(full.scalar_type()).log();
      return;
    }
    const at::Tensor sum = probs.sum(-1, /*keepdim=*/true), missing = 1.0 - sum;
    beside_ = masked(full).logsumexp(at::IntArrayRef{-1}, /*keepdim=*/true) + (missing / sum).clamp_min(0.0).log();
    beside_ = beside_.masked_fill(missing.lt(kRounding), -std::numeric_limits<double>::infinity());
  }

  at::Tensor operator()(const at::Tensor& scores) const {
    if (!shares_) {
      return (scores - log_keys_).sigmoid().masked_fill(hidden_, 0.0);
    }
    return at::cat({masked(scores), beside_}, -1).softmax(-1).slice(-1, 0, -1);
  }

 private:
  static constexpr double kRounding = 1e-5;  // of weights that add up to 1, in float32

  at::Tensor masked(const at::Tensor& scores) const {
    return scores.masked_fill(hidden_, -std::numeric_limits<double>::infinity());
  }

  bool shares_;
  at::Tensor hidden_, log_keys_, beside_;
};

Split before_the_softmax(const Attribution& a, std::int64_t begin, std::int64_t count) {
  const at::Tensor terms = terms_on(*a.pre, a.scores.narrow(1, begin, count), begin);
  const at::Tensor probs = a.probs.narrow(1, begin, count);
  const Weighing weigh(a, terms.sum(0), probs, begin);
  std::vector<at::Tensor> changes;
  at::Tensor scores = at::zeros_like(probs), before = at::zeros_like(probs);
  for (std::int64_t term = 0; term < terms.size(0); ++term) {
    scores = scores + terms[term];
    const at::Tensor now = term + 1 < terms.size(0) ? weigh(scores) : probs;
    changes.push_back(compose_all(a.post, now - before, begin));
    before = now;
  }
  return {"before the softmax", a.pre->names, at::stack(changes)};
}

}  // namespace

Split split_scores(const Attribution& a, std::int64_t begin, std::int64_t count) {
  const at::NoGradGuard no_grad;
  if (!a.pre) {
    return {"scores", {}, {}};
  }
  return {"scores", a.pre->names, terms_on(*a.pre, a.scores.narrow(1, begin, count), begin)};
}

std::vector<Split> split_weights(const Attribution& a, std::int64_t begin, std::int64_t count) {
  const at::NoGradGuard no_grad;
  std::vector<Split> splits;
  const at::Tensor probs = a.probs.narrow(1, begin, count);
  if (a.pre) {
    splits.push_back(before_the_softmax(a, begin, count));
  }
  if (a.post) {
    splits.push_back({"after the softmax", a.post->names, terms_on(*a.post, probs, begin)});
  }
  if (a.responsibilities.defined()) {
    Split components{"components", {}, {}};
    std::vector<at::Tensor> parts;
    for (std::int64_t r = 0; r < a.responsibilities.size(0); ++r) {
      components.terms.push_back("component " + std::to_string(r + 1));
      parts.push_back(compose_all(a.post, probs * a.responsibilities[r].narrow(1, begin, count), begin));
    }
    components.weights = at::stack(parts);
    splits.push_back(std::move(components));
  }
  return splits;
}

}  // namespace headroom::inspect
