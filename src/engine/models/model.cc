#include "headroom/models/model.h"

#include <numeric>

#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/models/masked_language_model.h"
#include "headroom/models/vision_transformer.h"

namespace headroom::models {

const at::Tensor& Batch::at(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    fail("batch: it has no \"{}\"", name);
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
  part.starts_afresh = starts_afresh;
  return part;
}

Batch Batch::to(at::Device device) const {
  Batch moved = *this;
  for (auto& [name, tensor] : moved.tensors) {
    tensor = tensor.to(device, /*non_blocking=*/true);  // the host goes on once it may be changed
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
    std::vector<at::Tensor> rows;
    for (const Memory& part : parts) {
      rows.push_back(part.layers[layer]);
    }
    all.layers.push_back(at::cat(rows, 0));
  }
  return all;
}

std::unique_ptr<Model> make_model(const config::ModelOptions& options, std::uint64_t seed,
                                  at::TensorOptions tensor_options) {
  return make_model(options, nn::Beginning(seed, tensor_options));
}

std::unique_ptr<Model> make_model(const config::ModelOptions& options, const nn::Beginning& beginning) {
  switch (options.kind) {
    case config::ModelKind::language_model:
      return std::make_unique<LanguageModel>(options, beginning);
    case config::ModelKind::masked_language_model:
      return std::make_unique<MaskedLanguageModel>(options, beginning);
    case config::ModelKind::encoder_decoder:
      return std::make_unique<EncoderDecoder>(options, beginning);
    case config::ModelKind::classifier:
      return std::make_unique<Classifier>(options, beginning);
    case config::ModelKind::vision:
      return std::make_unique<VisionTransformer>(options, beginning);
  }
  fail("model.kind: unknown");
}

}  // namespace headroom::models
