// The diversity of a layer's heads, measured on their query-key and value-output matrices (DCMHA, Figure 5).
#include <algorithm>
#include <cmath>
#include <limits>

#include "analyse.h"
#include "foundation/draw/charts.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "measures.h"
#include "model_runner.h"

namespace headroom::analyse {
namespace {

// Returns C C^T [d, d], where C is the concatenation of all matrices.
at::Tensor sum_of_squares(const std::vector<Circuit>& heads) {
  at::Tensor sum;
  for (const Circuit& head : heads) {
    at::Tensor inner;  // sum of r^T r
    for (const at::Tensor& r : head.right) {
      add_to(inner, r.t().mm(r));
    }
    for (const at::Tensor& l : head.left) {
      add_to(sum, l.mm(inner).mm(l.t()));
    }
  }
  return sum;
}

// Returns the dot products of all pairs of flattened matrices, [n, n].
at::Tensor dot_products(const std::vector<Circuit>& heads) {
  std::vector<at::Tensor> left, right;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (const Circuit& head : heads) {
    for (std::size_t l = 0; l < head.left.size(); ++l) {
      for (std::size_t r = 0; r < head.right.size(); ++r) {
        pairs.emplace_back(std::ssize(left) + static_cast<std::int64_t>(l),
                           std::ssize(right) + static_cast<std::int64_t>(r));
      }
    }
    left.insert(left.end(), head.left.begin(), head.left.end());
    right.insert(right.end(), head.right.begin(), head.right.end());
  }
  const auto n = static_cast<std::int64_t>(pairs.size());
  const at::Tensor l = at::stack(left), r = at::stack(right);
  at::Tensor dots = at::empty({n, n}, at::kDouble);
  auto value = dots.accessor<double, 2>();
  for (std::int64_t i = 0; i < n; ++i) {
    const auto [li, ri] = pairs[static_cast<std::size_t>(i)];
    // tr((l_i^T l_j) (r_j^T r_i)) for all j
    const at::Tensor with_left = at::matmul(l[li].t(), l), with_right = at::matmul(r[ri].t(), r);
    for (std::int64_t j = 0; j < n; ++j) {
      const auto [lj, rj] = pairs[static_cast<std::size_t>(j)];
      value[i][j] = (with_left[lj] * with_right[rj]).sum().item<double>();
    }
  }
  return dots;
}

}  // namespace

at::Tensor captured_variance(const std::vector<Circuit>& heads) {
  const at::Tensor squares = at::linalg_eigvalsh(sum_of_squares(heads)).flip(0).clamp_min(0.0);
  return squares.cumsum(0) / squares.sum().clamp_min(1e-300);
}

double diversity(const std::vector<Circuit>& heads) {
  const at::Tensor dots = dot_products(heads);
  const auto n = static_cast<double>(dots.size(0));
  if (n < 2.0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const at::Tensor length = dots.diagonal().clamp_min(1e-300).sqrt();
  const at::Tensor cosines = dots / (length.unsqueeze(0) * length.unsqueeze(1));
  const double first = at::linalg_eigvalsh(cosines)[-1].item<double>() / n;
  return std::clamp((1.0 - first) / (1.0 - 1.0 / n), 0.0, 1.0);
}

namespace {

constexpr std::size_t kMostPoints = 120;  // per curve

// The circuits of each head of an attention layer.
class LayerCircuits {
 public:
  LayerCircuits(const ModelRunner& runner, const AttentionLayer& layer)
      : runner_(runner), name_(layer.name), options_(runner.options().attention) {}

  std::vector<Circuit> query_key() const {
    std::vector<Circuit> heads;
    for (std::int64_t h = 0; h < n_heads(); ++h) {
      heads.push_back({.left = side('q', h, 0), .right = {}});
      for (std::int64_t r = 0; r < options_.key_projections(); ++r) {
        const std::vector<at::Tensor> keys = side('k', h, r);
        heads.back().right.insert(heads.back().right.end(), keys.begin(), keys.end());
      }
    }
    return heads;
  }
  std::vector<Circuit> output_value() const {
    std::vector<Circuit> heads;
    for (std::int64_t h = 0; h < n_heads(); ++h) {
      heads.push_back({.left = side('v', h, 0), .right = {}});
      for (const at::Tensor& o : side('o', h, 0)) {
        heads.back().right.push_back(o.t());
      }
    }
    return heads;
  }

 private:
  std::int64_t n_heads() const { return options_.projection->all_heads(options_); }
  at::Tensor matrix(const std::string& name) const {
    return runner_.parameter(name_ + "." + name).to(at::kCPU, at::kDouble);
  }

  // Returns a head's matrices for one projection, [d, e] ([e, d] for "o"): one matrix, or one per expert.
  std::vector<at::Tensor> side(char which, std::int64_t head, std::int64_t copy) const {
    if (options_.projection->has_latent()) {
      return {latent(which, head)};
    }
    at::Tensor w = matrix(std::string("w_") + which);
    if (which == 'k' && options_.key_projections() > 1) {
      w = w[copy];
    }
    if (const std::int64_t of_expert = options_.projection->heads_per_expert(options_);
        of_expert > 1 && (which == 'q' || which == 'o')) {  // [E, d, heads, e], [E, heads, e, d]
      const std::int64_t experts = n_heads() / of_expert;
      return {w.select(which == 'q' ? 2 : 1, head / experts)[head % experts]};
    }
    if (options_.has_experts(which)) {  // [heads, E, in, out]
      return shared_by(w, 0, head).unbind(0);
    }
    if (w.dim() == 2) {
      return {w};  // shared by all heads
    }
    const bool first = which == 'o' || (which == 'q' && routes_heads(options_));  // whether dimension 0 is the head
    return {shared_by(w, first ? 0 : 1, head)};
  }

  // Returns what a head reads along `axis`, of which neighbouring heads may share an element.
  at::Tensor shared_by(const at::Tensor& w, std::int64_t axis, std::int64_t head) const {
    return w.select(axis, head / (n_heads() / w.size(axis)));
  }

  // Returns the projection through the latent. Includes the scale of the latent's norm but not its division by the RMS.
  at::Tensor latent(char which, std::int64_t head) const {
    if (which == 'o') {
      return matrix("w_o")[head];
    }
    if (which == 'q') {
      const at::Tensor w = matrix("w_q").select(1, head);
      return options_.of<config::LatentOptions>().q_rank > 0 ? (matrix("w_q_down") * matrix("q_down_norm")).mm(w) : w;
    }
    const std::int64_t groups = options_.of<config::LatentOptions>().latent_groups;
    const at::Tensor down =
        (matrix("w_kv_down") * matrix("kv_norm")).chunk(groups, 1)[head / (options_.n_heads / groups)];
    const at::Tensor of_head = down.mm(matrix(std::string("w_") + which).select(1, head));
    return which == 'v' ? of_head : at::cat({matrix("w_k_rotary"), of_head}, 1);
  }

  const ModelRunner& runner_;
  std::string name_;
  config::AttentionOptions options_;
};

class DiversityAnalysis : public Analysis {
 public:
  Findings finish(const ModelRunner& runner) override {
    Findings found;
    std::vector<at::Tensor> curves[2];
    std::vector<double> sizes[2];
    for (const AttentionLayer& layer : runner.attention_layers()) {
      const LayerCircuits of_layer(runner, layer);
      const std::vector<Circuit> circuits[2] = {of_layer.query_key(), of_layer.output_value()};
      for (const int which : {0, 1}) {
        const at::Tensor curve = captured_variance(circuits[which]);
        const double size = diversity(circuits[which]);
        curves[which].push_back(curve);
        found.tensors[layer.name + "." + kNames[which]] = curve;
        found.metrics["layers"][layer.name][kNames[which]] = {
            {"diversity", std::isfinite(size) ? Json(size) : Json(nullptr)},
            {"components_for_90_percent", curve.lt(0.9).sum().item<std::int64_t>() + 1}};
        if (std::isfinite(size)) {
          sizes[which].push_back(size);
        }
      }
    }
    Json lines = Json::array();
    for (const int which : {0, 1}) {
      const at::Tensor mean = at::stack(curves[which]).mean(0);
      found.tensors[std::string("mean.") + kNames[which]] = mean;
      lines.push_back(line_of(which, mean));
      if (!sizes[which].empty()) {
        double sum = 0.0;
        for (const double size : sizes[which]) {
          sum += size;
        }
        found.metrics["mean"][kNames[which]]["diversity"] = sum / static_cast<double>(sizes[which].size());
      }
      found.metrics["mean"][kNames[which]]["components_for_90_percent"] = mean.lt(0.9).sum().item<std::int64_t>() + 1;
      // The mean of the curve is 1 if a single component explains all variance.
      found.metrics["mean"][kNames[which]]["captured_variance"] = mean.mean().item<double>();
    }
    found.figures.push_back({.caption = "cumulative captured variance",
                             .remark = "principal components of the concatenated matrices of all heads, mean over "
                                       "layers; a lower curve means more diverse heads",
                             .blocks = {{{"chart", "lines"},
                                         {"title", "captured variance"},
                                         {"x_label", "principal components"},
                                         {"lines", std::move(lines)},
                                         {"y", "shares"}}}});
    found.figures.push_back({.caption = "by layer",
                             .remark = "diversity is 0 if all heads are equal, 1 if they are orthogonal",
                             .blocks = Json::array({table_of_layers(found.metrics.at("layers"))})});
    found.summary = fmt::format("principal components for 90% of the variance: {} of W_Q W_K^T, {} of W_V W_O",
                                found.metrics["mean"]["qk"]["components_for_90_percent"].get<int>(),
                                found.metrics["mean"]["ov"]["components_for_90_percent"].get<int>());
    return found;
  }

 private:
  static constexpr const char* kNames[2] = {"qk", "ov"};

  static Json line_of(int which, const at::Tensor& curve) {
    Json points = Json::array();
    const std::vector<double> all = to_vector(curve);
    const std::size_t step = std::max<std::size_t>(1, all.size() / kMostPoints);
    for (std::size_t i = 0; i < all.size(); i += step) {
      points.push_back(draw::numbers({static_cast<double>(i + 1), all[i]}));
    }
    return {{"name", kNames[which]}, {"points", std::move(points)}, {"style", which}};
  }

  static Json table_of_layers(const Json& layers) {
    std::vector<std::vector<Json>> rows;
    for (const auto& [name, both] : layers.items()) {
      std::vector<Json> row = {layer_of(name)};
      for (const char* which : kNames) {
        const Json& size = both.at(which).at("diversity");
        row.push_back(size.is_null() ? "\u2013" : fmt::format("{:.3f}", size.get<double>()));
        row.push_back(fmt::format("{}", both.at(which).at("components_for_90_percent").get<int>()));
      }
      rows.push_back(std::move(row));
    }
    return table_of({"layer", "QK diversity", "QK for 90%", "OV diversity", "OV for 90%"}, rows);
  }
};

// Latents are folded into the matrices; other projections without a matrix per head are refused.
std::string refuse_several_maps(const config::ModelOptions& options) {
  const config::AttentionOptions& o = options.attention;
  if (o.share_kv > 0 || (!o.projection->has_latent() && !o.projection->has_head_matrices())) {
    return refuse_without_head_matrices(options);
  }
  return o.composition->maps_per_head(o) == 1
             ? ""
             : fmt::format("its heads have several query-key matrices each (composition \"{}\")", o.composition.name());
}

const AnalysisRegistration kDiversity(
    {.name = "diversity",
     .order = 5,
     .about = "How much the query-key (QK) and value-output (OV) matrices of a layer's heads differ.",
     .refusal = refuse_several_maps,
     .make = make_analysis<DiversityAnalysis>,
     .reads_text = false});

}  // namespace
}  // namespace headroom::analyse
