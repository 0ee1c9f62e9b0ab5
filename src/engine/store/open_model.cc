#include "headroom/store/open_model.h"

#include <vector>

#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "headroom/store/run_folder.h"

namespace headroom::store {
namespace {

// The checkpoint's parameters in the order in which its model makes them.
std::vector<at::Tensor> parameters_of(const Checkpoint& checkpoint) {
  const auto shapes = models::make_model(checkpoint.config.model, 0, at::TensorOptions(at::kFloat).device(at::kMeta));
  std::vector<at::Tensor> tensors;
  for (const nn::Parameter& parameter : shapes->parameters().made()) {
    const auto found = checkpoint.tensors.find("model." + parameter.name);
    if (found == checkpoint.tensors.end()) {
      fail("checkpoint: parameter \"{}\" is missing", parameter.name);
    }
    tensors.push_back(found->second);
  }
  return tensors;
}

}  // namespace

std::unique_ptr<models::Model> build_trainable(const Checkpoint& checkpoint, at::Device device) {
  std::vector<at::Tensor> tensors = parameters_of(checkpoint);
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  }
  auto model = models::make_model(checkpoint.config.model, nn::Beginning(std::move(tensors)));
  for (nn::Parameter parameter : model->parameters().all()) {
    parameter.tensor.requires_grad_(true);
  }
  return model;
}

std::unique_ptr<models::Model> build_model(const Checkpoint& checkpoint, at::Device device,
                                           std::optional<at::ScalarType> for_writing) {
  std::vector<at::Tensor> tensors = parameters_of(checkpoint);
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.to(device).detach();  // a handle of its own: another type of it leaves the checkpoint's alone
  }
  auto model = models::make_model(checkpoint.config.model, nn::Beginning(std::move(tensors)));
  if (for_writing) {
    model->parameters().keep_products_in(*for_writing);
  }
  return model;
}

OpenedModel open_model(const std::string& run_or_checkpoint, const OpenOptions& options) {
  OpenedModel opened;
  // A device that is not there is reported before anything is read.
  std::optional<at::Device> device;
  if (!options.device.empty()) {
    device = models::resolve(options.device);
  }
  if (options.average > 1) {
    opened.name = fmt::format("{} (mean of {} checkpoints)", run_or_checkpoint, options.average);
    opened.checkpoint = average_checkpoints(run_or_checkpoint, options.average);
  } else {
    const std::filesystem::path file = find_checkpoint(run_or_checkpoint);
    opened.name = file.string();
    opened.checkpoint = read_checkpoint(file);
  }
  config::TrainOptions& train = opened.checkpoint.config.train;
  train.precision = options.precision.value_or(train.precision);
  const at::Device where = device ? *device : models::resolve(train.device);
  models::set_threads(options.threads > 0 ? options.threads : train.threads);
  opened.context = models::make_context(train, where);
  opened.model = build_model(opened.checkpoint, where, options.writes ? opened.context.compute_dtype : std::nullopt);
  return opened;
}

}  // namespace headroom::store
