#include "start.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "engine/nn/linear.h"
#include "fit.h"

namespace headroom::convert {
namespace {

constexpr double kRouterDeviation = 0.3;       // deviation of the scores; gates start near their mean
constexpr std::int64_t kClusterTokens = 2048;  // tokens whose activations group the units
constexpr int kRounds = 10;

class ExpertStart {
 public:
  explicit ExpertStart(const MlpStartRequest& request)
      : r_(request), experts_(request.to.n_experts), gated_(request.from.kind == config::MlpKind::gated) {}

  bool start() const {
    const bool all = r_.to.top_k == experts_;
    const at::Tensor inputs = all ? at::Tensor() : r_.inputs();
    const at::Tensor units = all ? at::arange(r_.from.d_hidden, at::kLong) : groups_of(inputs);
    write_units("up", units);
    if (gated_) {
      write_units("gate", units);
    }
    const at::Tensor down = source("w_down").index_select(0, units).view({experts_, r_.to.d_hidden, -1});
    write("w_down", down / gate_size());
    if (r_.from.bias) {
      write("b_out", source("b_down"));
      write("b_down", source("b_down") / (gate_size() * static_cast<double>(r_.to.top_k)));
    }
    write("b_select", at::zeros({1}));
    write("select", all ? at::zeros({1}) : router(inputs, units));
    return all;
  }

 private:
  at::Tensor find(const nn::Parameters& in, const std::string& name) const {
    for (const nn::Parameter& parameter : in.all()) {
      if (parameter.name == r_.place + "." + name) {
        return parameter.tensor;
      }
    }
    return {};
  }
  at::Tensor source(const std::string& name) const { return find(r_.source, name); }
  void write(const std::string& name, const at::Tensor& value) const {
    if (const at::Tensor to = find(r_.target, name); to.defined()) {
      to.copy_(value.expand_as(to));
    }
  }

  // Writes a matrix [d, h] of hidden units, and its bias, divided into experts.
  void write_units(const std::string& which, const at::Tensor& units) const {
    const at::Tensor w = source("w_" + which).index_select(1, units);
    write("w_" + which, w.view({w.size(0), experts_, -1}).transpose(0, 1));
    if (r_.from.bias) {
      write("b_" + which, source("b_" + which).index_select(0, units).view({experts_, -1}));
    }
  }

  // The weight of a chosen expert while the scores are 0.
  double gate_size() const {
    switch (r_.to.gate) {
      case config::Gate::sigmoid:
        return 0.5 * r_.to.gate_scale;
      case config::Gate::softmax:
        return r_.to.gate_scale / static_cast<double>(experts_);
      default:  // sums to 1 over the chosen experts
        return r_.to.gate_scale / static_cast<double>(r_.to.top_k);
    }
  }

  // The size of each unit's contribution, [N, h].
  at::Tensor contributions(const at::Tensor& inputs) const {
    const auto read = [&](const std::string& which) {
      const at::Tensor y = at::mm(inputs, source("w_" + which));
      return r_.from.bias ? y + source("b_" + which) : y;
    };
    const at::Tensor hidden = gated_ ? nn::activate(read("gate"), r_.from.activation) * read("up")
                                     : nn::activate(read("up"), r_.from.activation);
    return hidden.abs() * source("w_down").norm(2, at::IntArrayRef{1});
  }

  at::Tensor groups_of(const at::Tensor& inputs) const {
    const at::Tensor some = inputs.narrow(0, 0, std::min(inputs.size(0), kClusterTokens));
    const at::Tensor by_unit = contributions(some).t();
    return balanced_groups(by_unit - by_unit.mean(1, /*keepdim=*/true), experts_);
  }

  // The map of a token to the logarithm of each expert's contribution, centred, by ridge regression; its results have
  // the deviation kRouterDeviation.
  at::Tensor router(const at::Tensor& inputs, const at::Tensor& units) const {
    constexpr std::int64_t kBlock = 2048;
    at::Tensor gram, cross;
    for (std::int64_t begin = 0; begin < inputs.size(0); begin += kBlock) {
      const at::Tensor x = inputs.narrow(0, begin, std::min(kBlock, inputs.size(0) - begin));
      const at::Tensor
          size = contributions(x).index_select(1, units).view({x.size(0), experts_, -1}).norm(2, at::IntArrayRef{2}),
          logs = (size + 1e-12).log(), centred = logs - logs.mean(1, /*keepdim=*/true);
      const at::Tensor own_gram = at::mm(x.t(), x).to(at::kDouble), own_cross = at::mm(x.t(), centred).to(at::kDouble);
      gram = gram.defined() ? gram + own_gram : own_gram;
      cross = cross.defined() ? cross + own_cross : own_cross;
    }
    const at::Tensor w = ridge_regression(gram, cross);  // [d, E]
    const double square = (w * at::mm(gram, w)).sum().item<double>() / static_cast<double>(inputs.size(0) * experts_);
    return (w * (kRouterDeviation / std::sqrt(std::max(square, 1e-24)))).to(at::kFloat);
  }

  const MlpStartRequest& r_;
  std::int64_t experts_;
  bool gated_;
};

// Indices [k] of units far from one another: each is the unit least like those before.
at::Tensor far_units(const at::Tensor& unit_features, std::int64_t k) {
  std::vector<std::int64_t> found = {0};
  at::Tensor nearest = at::mv(unit_features, unit_features[0]);
  while (static_cast<std::int64_t>(found.size()) < k) {
    found.push_back(nearest.argmin().item<std::int64_t>());
    nearest = at::maximum(nearest, at::mv(unit_features, unit_features[found.back()]));
  }
  return at::tensor(found, at::kLong);
}

}  // namespace

at::Tensor balanced_groups(const at::Tensor& features, std::int64_t groups) {
  const auto normed = [](const at::Tensor& rows) { return rows / (rows.norm(2, at::IntArrayRef{1}, true) + 1e-12); };
  const at::Tensor rows = normed(features.contiguous());
  const std::int64_t units = rows.size(0), size = units / groups;
  at::Tensor centres = rows.index_select(0, far_units(rows, groups)), order;
  for (int round = 0; round < kRounds; ++round) {
    // The closest pairs of unit and group first, as long as the group has room.
    const at::Tensor pairs = std::get<1>(at::mm(rows, centres.t()).flatten().sort(/*stable=*/true, 0, true));
    const std::int64_t* const pair = pairs.const_data_ptr<std::int64_t>();
    std::vector<std::int64_t> group(static_cast<std::size_t>(units), -1);
    std::vector<std::vector<std::int64_t>> members(static_cast<std::size_t>(groups));
    for (std::int64_t i = 0; i < units * groups; ++i) {
      std::int64_t& of = group[static_cast<std::size_t>(pair[i] / groups)];
      std::vector<std::int64_t>& in = members[static_cast<std::size_t>(pair[i] % groups)];
      if (of < 0 && static_cast<std::int64_t>(in.size()) < size) {
        of = pair[i] % groups;
        in.push_back(pair[i] / groups);
      }
    }
    std::vector<std::int64_t> all;
    for (std::vector<std::int64_t>& in : members) {
      std::sort(in.begin(), in.end());
      all.insert(all.end(), in.begin(), in.end());
    }
    order = at::tensor(all, at::kLong);
    centres = normed(rows.index_select(0, order).view({groups, size, -1}).mean(1));
  }
  return order;
}

bool start_mlp(const MlpStartRequest& request) {
  const at::NoGradGuard guard;
  return ExpertStart(request).start();
}

}  // namespace headroom::convert
