#include "activations.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/nn/observer.h"

namespace headroom::convert {
namespace {

// Runs the batches and calls visit(recorder) after each.
template <class Visit>
void run(const models::Model& model, const std::vector<models::Batch>& batches, const std::vector<std::string>& names,
         const Visit& visit) {
  const at::NoGradGuard guard;
  models::Memory memory;
  for (const models::Batch& batch : batches) {
    nn::Recorder recorder(names);
    nn::Context context;
    context.observer = &recorder;
    model.loss(batch, memory, context);
    visit(recorder);
  }
}

}  // namespace

LayerActivations LayerActivations::narrow(std::int64_t begin, std::int64_t count) const {
  return {x.narrow(0, begin, count), source.narrow(0, begin, count), y.narrow(0, begin, count)};
}

LayerActivations LayerActivations::select(const at::Tensor& sequences) const {
  return {x.index_select(0, sequences), source.index_select(0, sequences), y.index_select(0, sequences)};
}

LayerActivations collect(const models::Model& model, const std::vector<models::Batch>& batches,
                         const std::string& place) {
  std::vector<at::Tensor> x, source, y;
  run(model, batches, {place + ".x", place + ".source", place + ".out"}, [&](const nn::Recorder& values) {
    if (!source.empty() && values.at(place + ".source").size(1) != source.front().size(1)) {
      x.clear(), source.clear(), y.clear();  // the first batches of a model with memory have less of it
    }
    x.push_back(values.at(place + ".x").to(at::kFloat));
    source.push_back(values.at(place + ".source").to(at::kFloat));
    y.push_back(values.at(place + ".out").to(at::kFloat));
  });
  return {at::cat(x), at::cat(source), at::cat(y)};
}

at::Tensor covariance_of(const models::Model& model, const std::vector<models::Batch>& batches,
                         const std::string& place) {
  at::Tensor sum;
  double tokens = 0.0;
  run(model, batches, {place + ".source"}, [&](const nn::Recorder& values) {
    const at::Tensor x = values.at(place + ".source").to(at::kFloat).flatten(0, 1);
    const at::Tensor own = at::mm(x.t(), x).to(at::kDouble);
    sum = sum.defined() ? sum + own : own;
    tokens += static_cast<double>(x.size(0));
  });
  return sum / tokens;
}

HeadSums collect_heads(const models::Model& model, const std::vector<models::Batch>& batches,
                       const std::string& place) {
  HeadSums sums;
  run(model, batches, {place + ".source", place + ".probs", place + ".out"}, [&](const nn::Recorder& values) {
    const at::Tensor maps = values.at(place + ".probs").to(at::kFloat),
                     source = values.at(place + ".source").to(at::kFloat);
    const at::Tensor y = values.at(place + ".out").to(at::kFloat).flatten(0, 1);
    const at::Tensor z = at::matmul(maps, source.unsqueeze(1))  // [B, H, T, d]
                             .transpose(1, 2)
                             .flatten(2)
                             .flatten(0, 1);
    const at::Tensor features = at::cat({z, at::ones({z.size(0), 1}, z.options())}, 1);
    const at::Tensor gram = at::mm(features.t(), features).to(at::kDouble);
    const at::Tensor cross = at::mm(features.t(), y).to(at::kDouble);
    sums.gram = sums.gram.defined() ? sums.gram + gram : gram;
    sums.cross = sums.cross.defined() ? sums.cross + cross : cross;
    sums.energy += y.square().sum().item<double>();
    sums.n_heads = maps.size(1);
    sums.width = source.size(2);
    sums.queries += static_cast<double>(y.size(0));
  });
  return sums;
}

at::Tensor HeadSums::rows_of(const std::vector<std::int64_t>& heads) const {
  std::vector<at::Tensor> rows = transformed(
      heads, [&](const std::int64_t head) { return at::arange(head * width, (head + 1) * width, at::kLong); });
  rows.push_back(at::full({1}, n_heads * width, at::kLong));
  return at::cat(rows);
}

double loss_of(const models::Model& model, const std::vector<models::Batch>& batches) {
  const at::NoGradGuard guard;
  models::Memory memory;
  double sum = 0.0, targets = 0.0;
  for (const models::Batch& batch : batches) {
    const auto n = static_cast<double>(batch.n_targets());
    sum += n * model.loss(batch, memory, {}).cross_entropy.item<double>();
    targets += n;
  }
  return sum / targets;
}

}  // namespace headroom::convert
