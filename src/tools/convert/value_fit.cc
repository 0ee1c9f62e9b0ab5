#include "fit.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "start.h"

namespace headroom::convert {
namespace {

// Without a bias, the last row, of the constant feature, is not fitted and stays 0.
at::Tensor regression(const at::Tensor& gram, const at::Tensor& cross, bool with_bias) {
  if (with_bias) {
    return ridge_regression(gram, cross, /*constant=*/true);
  }
  const std::int64_t n = gram.size(0) - 1;
  const at::Tensor solved = ridge_regression(gram.narrow(0, 0, n).narrow(1, 0, n), cross.narrow(0, 0, n));
  return at::cat({solved, at::zeros({1, cross.size(1)}, cross.options())});
}

double squared_error(const at::Tensor& gram, const at::Tensor& cross, const at::Tensor& weights, double energy) {
  return energy + (weights * (at::mm(gram, weights) - 2.0 * cross)).sum().item<double>();
}

struct Selected {
  at::Tensor gram, cross;
};

Selected select(const HeadSums& sums, const std::vector<std::int64_t>& heads) {
  if (static_cast<std::int64_t>(heads.size()) == sums.n_heads) {
    return {sums.gram, sums.cross};  // large: not copied
  }
  const at::Tensor rows = sums.rows_of(heads);
  return {sums.gram.index_select(0, rows).index_select(1, rows), sums.cross.index_select(0, rows)};
}

// Returns the error of the best full-rank maps of these heads, a quick bound for choosing heads.
double full_rank_error(const HeadSums& sums, const std::vector<std::int64_t>& heads, bool with_bias) {
  const Selected chosen = select(sums, heads);
  return squared_error(chosen.gram, chosen.cross, regression(chosen.gram, chosen.cross, with_bias), sums.energy);
}

// Holds the roots of each head's covariance, computed once.
class HeadRoots {
 public:
  explicit HeadRoots(const HeadSums& sums) : sums_(sums) {}
  const Roots& of(std::int64_t head) {
    if (const auto found = roots_.find(head); found != roots_.end()) {
      return found->second;
    }
    const std::int64_t d = sums_.width;
    const at::Tensor own = sums_.gram.narrow(0, head * d, d).narrow(1, head * d, d);
    return roots_.emplace(head, Roots(own / sums_.queries)).first->second;
  }

 private:
  const HeadSums& sums_;
  std::map<std::int64_t, Roots> roots_;
};

ValueFit fit_with(HeadRoots& head_roots, const HeadSums& sums, const std::vector<std::int64_t>& heads,
                  std::int64_t rank, bool with_bias) {
  const auto [gram, cross] = select(sums, heads);
  const std::int64_t d = sums.width, n = static_cast<std::int64_t>(heads.size());
  const at::Tensor maps = regression(gram, cross, with_bias);
  std::vector<at::Tensor> values;
  for (std::int64_t i = 0; i < n; ++i) {
    const Roots& roots = head_roots.of(heads[static_cast<std::size_t>(i)]);
    const auto [u, s, vh] = at::linalg_svd(at::mm(roots.root, maps.narrow(0, i * d, d)), /*full_matrices=*/false);
    values.push_back(at::mm(roots.inverse, u.narrow(1, 0, rank)) * s.narrow(0, 0, rank).clamp_min(1e-12).sqrt());
  }
  // Returns the features z_h values[h] and the constant as a map of z.
  at::Tensor features = at::zeros({n * d + 1, n * rank + 1}, gram.options());
  for (std::int64_t i = 0; i < n; ++i) {
    features.narrow(0, i * d, d).narrow(1, i * rank, rank).copy_(values[static_cast<std::size_t>(i)]);
  }
  features[n * d][n * rank] = 1.0;
  const at::Tensor own_gram = at::mm(features.t(), at::mm(gram, features)), own_cross = at::mm(features.t(), cross);
  const at::Tensor outputs = regression(own_gram, own_cross, with_bias);
  return {.heads = heads,
          .values = at::stack(values),
          .outputs = outputs.narrow(0, 0, n * rank).view({n, rank, sums.cross.size(1)}),
          .bias = outputs[n * rank],
          .error = squared_error(own_gram, own_cross, outputs, sums.energy) / sums.energy};
}

}  // namespace

ValueFit fit_values(const HeadSums& sums, const std::vector<std::int64_t>& heads, std::int64_t rank, bool with_bias) {
  HeadRoots roots(sums);
  return fit_with(roots, sums, heads, rank, with_bias);
}

ValueFit choose_heads(const HeadSums& sums, std::int64_t count, std::int64_t rank, bool with_bias) {
  std::vector<std::int64_t> chosen;
  HeadRoots roots(sums);
  if (count == 2) {
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t one = 0; one < sums.n_heads; ++one) {
      for (std::int64_t other = one + 1; other < sums.n_heads; ++other) {
        const double error = fit_with(roots, sums, {one, other}, rank, with_bias).error;
        if (error < least) {
          least = error;
          chosen = {one, other};
        }
      }
    }
  }
  while (static_cast<std::int64_t>(chosen.size()) < count) {
    double least = std::numeric_limits<double>::infinity();
    std::vector<std::int64_t> best;
    for (std::int64_t head = 0; head < sums.n_heads; ++head) {
      if (std::ranges::find(chosen, head) == chosen.end()) {
        std::vector<std::int64_t> more = chosen;
        more.insert(std::ranges::upper_bound(more, head), head);
        const double error = full_rank_error(sums, more, with_bias);
        if (error < least) {
          least = error;
          best = more;
        }
      }
    }
    chosen = best;
  }
  return fit_with(roots, sums, chosen, rank, with_bias);
}

namespace {

constexpr double kLeast = 1e-10;  // eigenvalues, relative to the largest

// Returns the root mean square over the tokens of each column of x queries, [H, c].
at::Tensor sizes_of(const at::Tensor& queries, const Roots& roots) {
  return at::matmul(roots.root, queries.flatten(1)).norm(2, at::IntArrayRef{0}).view({queries.size(1), -1});
}

}  // namespace

Roots::Roots(const at::Tensor& covariance) {
  auto [values, vectors] = at::linalg_eigh(covariance);
  values = values.clamp_min(kLeast * values.max().item<double>()).sqrt();
  root = at::mm(vectors * values, vectors.t());
  inverse = at::mm(vectors / values, vectors.t());
}

LowRank low_rank(const at::Tensor& matrix, const at::Tensor& weights, std::int64_t rank, const Roots& roots) {
  const at::Tensor whitened = at::mm(roots.root, matrix);
  const at::Tensor left = std::get<0>(at::linalg_svd(whitened * weights, /*full_matrices=*/false));
  const at::Tensor kept = left.narrow(1, 0, std::min(rank, left.size(1)));
  return {.down = at::mm(roots.inverse, kept), .up = at::mm(kept.t(), whitened)};
}

Normalised with_orthonormal_columns(const LowRank& factors, const Roots& roots) {
  const auto [basis, triangle] = at::linalg_qr(factors.down);
  const double size = at::mm(roots.root, basis).square().sum(0).mean().sqrt().item<double>();
  return {.factors = {.down = basis, .up = at::mm(triangle, factors.up)}, .size = size};
}

SharedKeys share_rotated(const at::Tensor& queries, const at::Tensor& keys, const Roots& roots) {
  const std::int64_t half = keys.size(2) / 2;
  if (half == 0) {
    return {.queries = queries, .keys = keys.select(1, 0)};  // no channels
  }
  const auto complex = [half](const at::Tensor& w) {  // [d, H, c/2]
    return at::complex(w.narrow(2, 0, half).contiguous(), w.narrow(2, half, half).contiguous());
  };
  const at::Tensor q = complex(queries), k = complex(keys), size = sizes_of(queries, roots);
  const at::Tensor weight =
      (size.narrow(1, 0, half).square() + size.narrow(1, half, half).square()).sqrt();  // [H, c/2]
  const at::Tensor root = roots.root.to(at::kComplexDouble), inverse = roots.inverse.to(at::kComplexDouble);
  std::vector<at::Tensor> shared_k, shared_q;
  for (std::int64_t pair = 0; pair < half; ++pair) {
    const at::Tensor weights = weight.select(1, pair).clamp_min(1e-12);
    const at::Tensor whitened = at::mm(root, k.select(2, pair));                                     // [d, H]
    const at::Tensor leading = std::get<0>(at::linalg_svd(whitened * weights, false)).select(1, 0);  // [d]
    const at::Tensor a = at::mv(whitened.t(), leading.conj());  // k_h = a_h leading, approximately
    shared_k.push_back(at::mv(inverse, leading));
    shared_q.push_back(q.select(2, pair) * a.conj());
  }
  const at::Tensor new_k = at::stack(shared_k, 1), new_q = at::stack(shared_q, 2);
  return {.queries = at::cat({at::real(new_q), at::imag(new_q)}, 2),
          .keys = at::cat({at::real(new_k), at::imag(new_k)}, 1)};
}

SharedKeys share_plain(const at::Tensor& queries, const at::Tensor& keys, std::int64_t rank, const Roots& roots) {
  const LowRank factors = low_rank(keys.flatten(1), sizes_of(queries, roots).flatten(), rank, roots);
  const at::Tensor up = factors.up.view({factors.up.size(0), keys.size(1), keys.size(2)});  // [r, H, c]
  return {.queries = at::einsum("dhc,rhc->dhr", {queries, up}), .keys = factors.down};
}

namespace {

at::Tensor covariance(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a.t(), b).to(at::kDouble) / static_cast<double>(a.size(0));
}

// A layer's matrices [d, H, e] as maps of the owner's tokens, and its output matrices [H, e, d].
struct SharingHeads {
  at::Tensor q, k, v, o;
};

SharedKeys shared_keys(const at::Tensor& q, const at::Tensor& k, std::int64_t rotated, const Roots& roots) {
  const std::int64_t still = q.size(2) - rotated;
  const SharedKeys turning = share_rotated(q.narrow(2, 0, rotated), k.narrow(2, 0, rotated), roots);
  if (still == 0) {
    return turning;
  }
  const SharedKeys plain = share_plain(q.narrow(2, rotated, still), k.narrow(2, rotated, still), still, roots);
  return {.queries = at::cat({turning.queries, plain.queries}, 2), .keys = at::cat({turning.keys, plain.keys}, 1)};
}

}  // namespace

bool can_share(const config::AttentionOptions& o) {
  return is_dense(o) && !o.bias && !o.qk_norm && o.gate_output == "none" && !o.of<config::DotOptions>().sink &&
         !o.position->has_offsets() && o.position != "alibi" && o.position != "forgetting";
}

void start_shared(const std::vector<SharingLayer>& layers, const config::AttentionOptions& owner,
                  const nn::Parameters& source, const nn::Parameters& target) {
  const at::NoGradGuard guard;
  const at::Tensor& own = layers.front().source;
  const at::Tensor gram = covariance(own, own);
  const Roots roots(gram);
  std::vector<SharingHeads> heads;
  for (const SharingLayer& layer : layers) {
    const at::Tensor map = ridge_regression(gram, covariance(own, layer.source));
    const auto matrix = [&](const char* name) {
      const at::Tensor w = source.at(layer.place + name).to(at::kDouble);
      return w.repeat_interleave(owner.n_heads / w.size(1), 1);
    };
    const auto read = [&](const char* name) { return at::einsum("cd,dhe->che", {map, matrix(name)}); };
    heads.push_back({matrix(".w_q"), read(".w_k"), read(".w_v"), source.at(layer.place + ".w_o").to(at::kDouble)});
  }
  const std::int64_t e = owner.d_head, groups = owner.kv_heads(), size = owner.n_heads / groups,
                     rotated = owner.position == "rope" ? owner.projection->rotary_channels(owner) : 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    std::vector<at::Tensor> q, k, products, bases;  // products of value and output matrices, in a basis of the outputs
    for (std::size_t i = 0; i < layers.size(); ++i) {
      q.push_back(heads[i].q.narrow(1, group * size, size));
      k.push_back(heads[i].k.narrow(1, group * size, size));
      for (std::int64_t head = group * size; head < (group + 1) * size; ++head) {
        const auto [basis, triangle] = at::linalg_qr(heads[i].o[head].t() * layers[i].weight);
        products.push_back(at::mm(heads[i].v.select(1, head), triangle.t()));
        bases.push_back(basis.t() / layers[i].weight);
      }
    }
    const SharedKeys keys = shared_keys(at::cat(q, 1), at::cat(k, 1), rotated, roots);
    const LowRank values = low_rank(at::cat(products, 1), at::ones({1}, at::kDouble), e, roots);
    target.at(layers.front().place + ".w_k").select(1, group).copy_(keys.keys);
    target.at(layers.front().place + ".w_v").select(1, group).copy_(values.down);
    for (std::size_t i = 0; i < bases.size(); ++i) {
      const std::int64_t index = static_cast<std::int64_t>(i), head = group * size + index % size;
      const std::string& place = layers[i / static_cast<std::size_t>(size)].place;
      target.at(place + ".w_q").select(1, head).copy_(keys.queries.select(1, index));
      target.at(place + ".w_o")[head].copy_(at::mm(values.up.narrow(1, index * e, e), bases[i]));
    }
  }
}

}  // namespace headroom::convert
