#include "start.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <string_view>

#include "headroom/config/attention/composition_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/config/attention_part.h"
#include "value_fit.h"

namespace headroom::convert {
namespace {

constexpr char kMatrices[] = {'q', 'k', 'v', 'o'};
constexpr double kRouterScale = 0.3;  // of a router's normal initialisation: gates then start near their mean
constexpr double kKeyNoise = 0.1;     // of the deviation of a key matrix, between the keys of a mixture
constexpr double kSink = -10.0;       // a weight of about exp(-10): small, but its gradient is not lost

class Layer {
 public:
  explicit Layer(const StartRequest& request) : r_(request), from_(request.from), to_(request.to) {}

  bool start() {
    const bool same_heads = to_.computed_heads() == from_.n_heads && to_.d_head == from_.d_head;
    const bool same_keys = same_heads && to_.kv_heads() == from_.kv_heads();
    copy_shared();
    bool exact = start_composition() && start_extras();
    if (to_.projection == "latent" || !to_.projection->has_fixed_heads()) {
      return false;
    }
    if (same_keys && !has_bank()) {
      start_keys(all_heads());
      scale_outputs();
      return exact && to_.score == from_.score && to_.projection == "dense";
    }
    if (same_heads && !has_bank()) {
      share_keys();
    } else if (to_.d_head >= from_.d_head) {
      refit();
    }
    scale_outputs();
    return false;
  }

 private:
  bool has_bank() const {
    return std::any_of(std::begin(kMatrices), std::end(kMatrices), [&](char which) { return to_.has_experts(which); });
  }
  at::Tensor find(const nn::Parameters& in, std::string_view name) const {
    const std::string full = r_.place + "." + std::string(name);
    for (const nn::Parameter& parameter : in.stored()) {
      if (parameter.name == full) {
        return parameter.tensor;
      }
    }
    return {};
  }
  at::Tensor source(std::string_view name) const { return find(r_.source, name); }
  at::Tensor target(std::string_view name) const { return find(r_.target, name); }
  void write(std::string_view name, const at::Tensor& value) const {
    const at::Tensor to = target(name);
    if (to.defined()) {
      to.copy_(value.to(to.scalar_type()).expand_as(to));
    }
  }

  // Copies every parameter that both layers have in the same shape.
  void copy_shared() const {
    for (const nn::Parameter& parameter : r_.source.stored()) {
      if (parameter.name.starts_with(r_.place + ".")) {
        const std::string name = parameter.name.substr(r_.place.size() + 1);
        const at::Tensor to = target(name);
        if (to.defined() && to.sizes() == parameter.tensor.sizes()) {
          to.copy_(parameter.tensor);
        }
      }
    }
    for (const char* router : {"select", "select_in", "select_out", "select_shared", "select_mix"}) {
      if (const at::Tensor to = target(router); to.defined()) {
        to.mul_(kRouterScale);
      }
    }
  }

  // Returns whether the maps start as the identity.
  bool start_composition() const {
    for (const char* stage : {"pre", "post"}) {
      for (const char* side : {".q", ".k"}) {
        write(std::string(stage) + side + ".wg", at::zeros({1}));
        if (const at::Tensor w2 = target(std::string(stage) + side + ".w2"); w2.defined()) {
          w2.select(2, 1).zero_();  // one factor of the low-rank map; the other gives it a gradient
        }
      }
      if (const at::Tensor fixed = target(std::string(stage) + ".wb"); fixed.defined()) {
        fixed.zero_();
        if (!to_.of<config::CompositionOptions>().compose_skip) {
          fixed.diagonal(0, 1, 2).fill_(1.0);
        }
      }
    }
    return to_.of<config::CompositionOptions>().compose_skip || to_.of<config::CompositionOptions>().compose_static ||
           to_.composition == "none" || to_.composition == "static";
  }

  // Returns whether gates, sinks and norms leave the layer exactly as it was.
  bool start_extras() const {
    write("w_gate", at::zeros({1}));
    write("b_gate", at::zeros({1}));
    write("sink", at::full({1}, kSink));
    return to_.qk_norm == from_.qk_norm && to_.of<config::DotOptions>().sink == from_.of<config::DotOptions>().sink;
  }

  std::vector<std::int64_t> all_heads() const {
    std::vector<std::int64_t> heads(static_cast<std::size_t>(from_.n_heads));
    std::iota(heads.begin(), heads.end(), std::int64_t{0});
    return heads;
  }
  at::Tensor key_heads_of(const std::vector<std::int64_t>& heads) const {
    const std::int64_t group = from_.n_heads / from_.kv_heads();
    std::vector<std::int64_t> keys;
    for (const std::int64_t head : heads) {
      keys.push_back(head / group);
    }
    return at::tensor(keys, at::kLong);
  }

  // The factor of a bank's experts: their gated sum should be the matrix.
  double expert_factor() const {
    return to_.of<config::RoutingOptions>().gate == config::Gate::sigmoid
               ? 2.0 / static_cast<double>(to_.of<config::RoutingOptions>().top_k)
               : 1.0;
  }

  // Writes matrices [d, H, e] (in) or [H, e, d] (out) as the target stores them: a matrix, or a bank [H, E, ...].
  void write_matrix(char which, const at::Tensor& by_head, bool heads_first) const {
    const std::string name{'w', '_', which};
    if (to_.has_experts(which)) {
      const at::Tensor first = heads_first ? by_head : by_head.transpose(0, 1);  // [H, d, e] or [H, e, d]
      write(name, first.unsqueeze(1) * expert_factor());
    } else {
      write(name, by_head);
    }
  }

  // Writes keys [d, H, e] to every key of a mixture.
  void write_keys(const at::Tensor& keys) const {
    const std::int64_t copies = to_.key_projections();
    if (copies == 1) {
      write_matrix('k', keys, false);
      return;
    }
    const at::Tensor to = target("w_k");
    const at::Tensor noise = to - to.mean();  // fresh draws, rescaled
    write("w_k", keys.unsqueeze(0) + noise * (kKeyNoise * keys.std().item<double>() / noise.std().item<double>()));
  }

  // Queries and keys of the chosen heads.
  void start_keys(const std::vector<std::int64_t>& heads) const {
    const at::Tensor rows = at::tensor(heads, at::kLong), key_rows = key_heads_of(heads);
    const std::int64_t more = to_.d_head - from_.d_head;
    const double scale = std::pow(static_cast<double>(to_.d_head) / static_cast<double>(from_.d_head), 0.25);
    const auto widen = [&](const at::Tensor& w, const at::Tensor& fill) {
      return more == 0 ? w : at::cat({w * scale, fill}, -1);
    };
    const auto grouped_rows = to_.kv_heads() == to_.n_heads ? key_rows : at::arange(to_.kv_heads(), at::kLong);
    const at::Tensor q = source("w_q").index_select(1, rows), k = source("w_k").index_select(1, grouped_rows);
    if (const at::Tensor fresh = target("w_q"); more > 0 && !to_.has_experts('q')) {
      write_matrix('q', widen(q, fresh.narrow(2, from_.d_head, more).clone()), false);
    } else {
      write_matrix('q', widen(q, at::zeros({q.size(0), q.size(1), more})), false);
    }
    write_keys(widen(k, at::zeros({k.size(0), k.size(1), more})));
    if (const at::Tensor b = source("b_q"); b.defined()) {
      write("b_q", widen(b.index_select(0, rows), at::zeros({rows.size(0), more})));
      write("b_k", widen(source("b_k").index_select(0, grouped_rows), at::zeros({grouped_rows.size(0), more})));
    }
    if (const at::Tensor w = source("w_pos"); w.defined()) {
      write("w_pos", widen(w.index_select(1, rows), at::zeros({w.size(0), rows.size(0), more})));
      for (const char* bias : {"u", "v"}) {
        if (const at::Tensor b = source(bias); b.defined()) {
          write(bias, widen(b.index_select(0, rows), at::zeros({rows.size(0), more})));
        }
      }
    }
  }

  void write_values(const ValueFit& fit) const {
    write_matrix('v', fit.values.permute({1, 0, 2}), false);
    write_matrix('o', fit.outputs, true);
    if (const at::Tensor b = target("b_o"); b.defined()) {
      b.copy_(fit.bias);
      write("b_v", at::zeros({1}));
    }
  }

  // Fewer heads, or experts: keeps the best heads' maps.
  void refit() const {
    const HeadSums sums = r_.sums();
    const bool with_bias = target("b_o").defined();
    const ValueFit fit = to_.computed_heads() < from_.n_heads
                             ? choose_heads(sums, to_.computed_heads(), to_.d_head, with_bias)
                             : fit_values(sums, all_heads(), to_.d_head, with_bias);
    start_keys(fit.heads);
    write_values(fit);
  }

  // The same heads with fewer keys and values: each group of heads shares the mean of its keys and values.
  void share_keys() const {
    const std::int64_t groups = to_.kv_heads(), merged = from_.kv_heads() / groups;
    for (const char* name : {"w_k", "w_v"}) {
      const at::Tensor w = source(name);
      write(name, w.view({w.size(0), groups, merged, w.size(2)}).mean(2));
    }
    for (const char* name : {"b_k", "b_v"}) {
      if (const at::Tensor b = source(name); b.defined()) {
        write(name, b.view({groups, merged, b.size(1)}).mean(1));
      }
    }
  }

  // Gates on the head outputs start at their mean, so the outputs are divided by it.
  void scale_outputs() const {
    double factor = to_.gate_output == "none" ? 1.0 : 2.0;
    if (to_.projection == "gated_heads") {
      factor *= to_.of<config::RoutingOptions>().gate == config::Gate::sigmoid
                    ? 2.0
                    : static_cast<double>(to_.of<config::RoutingOptions>().top_k);
    }
    if (const at::Tensor o = target("w_o"); factor != 1.0) {
      o.mul_(factor);
    }
  }

  const StartRequest& r_;
  const config::AttentionOptions& from_;
  const config::AttentionOptions& to_;
};

}  // namespace

bool start_layer(const StartRequest& request) {
  const at::NoGradGuard guard;
  return Layer(request).start();
}

}  // namespace headroom::convert
