#include "headroom/models/model.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <numeric>

#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/models/masked_language_model.h"
#include "model_base.h"

namespace headroom::models {

const at::Tensor& Batch::at(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    fail("batch: \"{}\" is missing", name);
  }
  return found->second;
}

at::Tensor Batch::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? at::Tensor() : found->second;
}

std::int64_t Batch::rows() const {
  return tensors.empty() ? 0 : tensors.begin()->second.size(0);
}

std::int64_t Batch::n_targets() const {
  return std::accumulate(targets.begin(), targets.end(), std::int64_t{0});
}

Batch Batch::narrow(std::int64_t begin, std::int64_t count) const {
  Batch part;
  for (const auto& [name, tensor] : tensors) {
    part.tensors.emplace(name, tensor.narrow(0, begin, count));
  }
  part.targets.assign(targets.begin() + begin, targets.begin() + begin + count);
  part.tokens = tokens / std::max<std::int64_t>(rows(), 1) * count;
  part.label_smoothing = label_smoothing;
  part.distillation = distillation;
  part.resets_memory = resets_memory;
  return part;
}

Batch Batch::to(at::Device device) const {
  Batch moved = *this;
  for (auto& [name, tensor] : moved.tensors) {
    tensor =
        tensor.to(device, /*non_blocking=*/true);  // the copy is queued; the source may be reused once this returns
  }
  return moved;
}

Memory Memory::narrow(std::int64_t begin, std::int64_t count) const {
  Memory rows;
  for (const at::Tensor& layer : layers) {
    rows.layers.push_back(layer.narrow(0, begin, count));
  }
  return rows;
}

Memory Memory::join(std::vector<Memory> parts) {
  if (parts.size() == 1) {
    return std::move(parts.front());
  }
  Memory all;
  for (std::size_t layer = 0; layer < parts.front().layers.size(); ++layer) {
    std::vector<at::Tensor> rows = transformed(parts, [&](const Memory& part) { return part.layers[layer]; });
    all.layers.push_back(at::cat(rows, 0));
  }
  return all;
}

Model::Model(std::unique_ptr<Parts> parts, const config::ModelOptions& options, config::ModelKind kind)
    : parts_(std::move(parts)) {
  if (options.kind != kind) {
    user_error("model.kind: must be {}, got {}", config::name_of(kind), config::name_of(options.kind));
  }
  parts_->options = options;
}

std::unique_ptr<Model> make_model(const config::ModelOptions& options, std::uint64_t seed,
                                  at::TensorOptions tensor_options) {
  return make_model(options, nn::ParameterSource(seed, tensor_options));
}

std::unique_ptr<Model> make_model(const config::ModelOptions& options, const nn::ParameterSource& source) {
  switch (options.kind) {
    case config::ModelKind::language_model:
      return std::make_unique<LanguageModel>(options, source);
    case config::ModelKind::masked_language_model:
      return std::make_unique<MaskedLanguageModel>(options, source);
    case config::ModelKind::encoder_decoder:
      return std::make_unique<EncoderDecoder>(options, source);
    case config::ModelKind::classifier:
      return std::make_unique<Classifier>(options, source);
    case config::ModelKind::vision:
      return std::make_unique<VisionTransformer>(options, source);
  }
  fail("model.kind: unknown");
}

namespace {

double balance_coefficient(const config::ModelOptions& o, const std::string& kind) {
  for (const config::BalanceLoss& loss : o.balance_losses()) {
    if (kind == loss.name) {
      return loss.coefficient;
    }
  }
  fail("balance loss {}: has no coefficient", kind);
}

}  // namespace

nn::Builder make_builder(const config::ModelOptions& o, nn::Parameters& parameters, const nn::ParameterSource& source) {
  nn::Initialisation initialisation{.rule = o.initialisation,
                                    .std = o.initialisation_std,
                                    .embedding_std = o.embedding_std,
                                    .seeds_by_name = o.initialisation_seeds == config::InitialisationSeeds::by_name};
  if (o.initialisation == config::Initialisation::pythia) {
    const auto d = static_cast<double>(o.d_model);
    initialisation.std = std::sqrt(2.0 / (5.0 * d));
    initialisation.stream_std = 2.0 / (static_cast<double>(o.n_layers) * std::sqrt(d));
  }
  return nn::Builder(parameters, source, initialisation);
}

nn::Linear::Options uniform_linear(std::int64_t in, std::int64_t out, bool bias) {
  const nn::Distribution uniform = nn::Distribution::uniform(1.0 / std::sqrt(static_cast<double>(in)));
  return {.in = in, .out = out, .init = uniform, .bias_init = uniform, .bias = bias};
}

at::Tensor random_ids(std::int64_t below, at::IntArrayRef shape, std::uint64_t seed) {
  return at::randint(below, shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions(at::kLong));
}

Loss with_balance(at::Tensor cross_entropy, BalanceLosses losses, const config::ModelOptions& options,
                  const nn::Context& context) {
  Loss loss;
  loss.cross_entropy = std::move(cross_entropy);
  for (const auto& [kind, value] : losses) {
    const at::Tensor term = value * balance_coefficient(options, kind);
    loss.regulariser = loss.regulariser.defined() ? loss.regulariser + term : term;
  }
  if (context.losses != nullptr) {
    *context.losses = std::move(losses);
  }
  return loss;
}

}  // namespace headroom::models
