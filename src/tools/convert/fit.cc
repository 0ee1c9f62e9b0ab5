#include "fit.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "headroom/ops/optimizers.h"
#include "shared_keys.h"

namespace headroom::convert {
namespace {

constexpr double kWarmupSteps = 5.0, kClip = 1.0;

at::Tensor error_of(const nn::Attention& attention, const LayerActivations& a) {
  return (attention({.x = a.x, .source = a.source}, {}) - a.y).square().sum();
}

double rate_at(std::int64_t step, const FitOptions& options) {
  const double s = static_cast<double>(step), n = static_cast<double>(options.steps);
  return options.learning_rate * std::min(1.0, (s + 1.0) / kWarmupSteps) * (n - s) / n;
}

}  // namespace

double relative_error(const nn::Attention& attention, const LayerActivations& activations) {
  const at::NoGradGuard guard;
  double error = 0.0;
  for (std::int64_t i = 0; i < activations.x.size(0); ++i) {
    error += error_of(attention, activations.narrow(i, 1)).item<double>();
  }
  return error / activations.y.square().sum().item<double>();
}

FitErrors fit(const nn::Attention& attention, const std::vector<at::Tensor>& parameters,
              const LayerActivations& activations, const LayerActivations& held_out, const FitOptions& options) {
  FitErrors errors{.start = relative_error(attention, held_out)};
  errors.fitted = errors.start;
  std::vector<at::Tensor> saved, m, v;
  for (const at::Tensor& parameter : parameters) {
    saved.push_back(parameter.detach().clone());
    m.push_back(at::zeros_like(parameter));
    v.push_back(at::zeros_like(parameter));
  }
  const at::Generator random = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  const std::int64_t n = activations.x.size(0);
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const LayerActivations part =
        activations.select(at::randint(n, {std::min(n, options.sequences)}, random, at::kLong));
    const at::Tensor loss = error_of(attention, part) / part.y.square().sum();
    loss.backward();
    std::vector<at::Tensor> moved, gradients, first, second;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].grad().defined()) {
        moved.push_back(parameters[i]);
        gradients.push_back(parameters[i].grad());
        first.push_back(m[i]);
        second.push_back(v[i]);
      }
    }
    const double norm = ops::global_norm(gradients);
    const at::NoGradGuard guard;
    ops::adamw_step(moved, gradients, first, second, step + 1,
                    {.learning_rate = rate_at(step, options),
                     .beta1 = 0.9,
                     .beta2 = 0.99,
                     .gradient_scale = norm > kClip ? kClip / norm : 1.0});
    for (at::Tensor parameter : parameters) {
      parameter.mutable_grad().reset();
    }
  }
  const double fitted = relative_error(attention, held_out);
  if (fitted < errors.start) {
    errors.fitted = fitted;
  } else {
    const at::NoGradGuard guard;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor parameter = parameters[i];
      parameter.copy_(saved[i]);
    }
  }
  return errors;
}

namespace {

constexpr double kRidge = 1e-3;  // of the mean of the diagonal

// Solves (gram + ridge) w = cross; without a bias, the last row (of the constant feature) is left out and stays 0.
at::Tensor ridge_regression(const at::Tensor& gram, const at::Tensor& cross, bool with_bias) {
  const std::int64_t n = gram.size(0) - (with_bias ? 0 : 1), features = gram.size(0) - 1;
  at::Tensor penalty = at::zeros({n}, gram.options());
  penalty.narrow(0, 0, features).fill_(kRidge * gram.diagonal().narrow(0, 0, features).mean().item<double>());
  if (with_bias) {
    penalty[n - 1] = 1e-9 * gram[n - 1][n - 1];
  }
  const at::Tensor left = gram.narrow(0, 0, n).narrow(1, 0, n) + at::diag(penalty);
  const at::Tensor solved = at::cholesky_solve(cross.narrow(0, 0, n), at::linalg_cholesky(left));
  return with_bias ? solved : at::cat({solved, at::zeros({1, cross.size(1)}, cross.options())});
}

double squared_error(const at::Tensor& gram, const at::Tensor& cross, const at::Tensor& weights, double energy) {
  return energy + (weights * (at::mm(gram, weights) - 2.0 * cross)).sum().item<double>();
}

struct Selected {
  at::Tensor gram, cross;
};

Selected select(const HeadSums& sums, const std::vector<std::int64_t>& heads) {
  const at::Tensor rows = sums.rows_of(heads);
  return {sums.gram.index_select(0, rows).index_select(1, rows), sums.cross.index_select(0, rows)};
}

// The error of the best maps of these heads without a limit of rank, a fast bound for the selection.
double full_rank_error(const HeadSums& sums, const std::vector<std::int64_t>& heads, bool with_bias) {
  const Selected chosen = select(sums, heads);
  return squared_error(chosen.gram, chosen.cross, ridge_regression(chosen.gram, chosen.cross, with_bias), sums.energy);
}

}  // namespace

ValueFit fit_values(const HeadSums& sums, const std::vector<std::int64_t>& heads, std::int64_t rank, bool with_bias) {
  const auto [gram, cross] = select(sums, heads);
  const std::int64_t d = sums.width, n = static_cast<std::int64_t>(heads.size());
  const at::Tensor maps = ridge_regression(gram, cross, with_bias);
  std::vector<at::Tensor> values;
  for (std::int64_t i = 0; i < n; ++i) {
    const at::Tensor covariance = gram.narrow(0, i * d, d).narrow(1, i * d, d) / sums.queries;
    const Roots roots(covariance);
    const auto [u, s, vh] = at::linalg_svd(at::mm(roots.root, maps.narrow(0, i * d, d)), /*full_matrices=*/false);
    values.push_back(at::mm(roots.inverse, u.narrow(1, 0, rank)) * s.narrow(0, 0, rank).clamp_min(1e-12).sqrt());
  }
  // The features z_h values[h] and the constant, as a map of z.
  at::Tensor features = at::zeros({n * d + 1, n * rank + 1}, gram.options());
  for (std::int64_t i = 0; i < n; ++i) {
    features.narrow(0, i * d, d).narrow(1, i * rank, rank).copy_(values[static_cast<std::size_t>(i)]);
  }
  features[n * d][n * rank] = 1.0;
  const at::Tensor own_gram = at::mm(features.t(), at::mm(gram, features)), own_cross = at::mm(features.t(), cross);
  const at::Tensor outputs = ridge_regression(own_gram, own_cross, with_bias);
  return {.heads = heads,
          .values = at::stack(values),
          .outputs = outputs.narrow(0, 0, n * rank).view({n, rank, sums.cross.size(1)}),
          .bias = outputs[n * rank],
          .error = squared_error(own_gram, own_cross, outputs, sums.energy) / sums.energy};
}

ValueFit choose_heads(const HeadSums& sums, std::int64_t count, std::int64_t rank, bool with_bias) {
  std::vector<std::int64_t> chosen;
  if (count == 2) {
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t one = 0; one < sums.n_heads; ++one) {
      for (std::int64_t other = one + 1; other < sums.n_heads; ++other) {
        const double error = fit_values(sums, {one, other}, rank, with_bias).error;
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
        more.insert(std::upper_bound(more.begin(), more.end(), head), head);
        const double error = full_rank_error(sums, more, with_bias);
        if (error < least) {
          least = error;
          best = more;
        }
      }
    }
    chosen = best;
  }
  return fit_values(sums, chosen, rank, with_bias);
}

}  // namespace headroom::convert
