#include "headroom/store/open_model.h"

#include "checkpoint_reader.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"

namespace headroom::store {
namespace {

// `keeps_half`: matrices that are only read in the compute type stay in half precision if stored in half precision.
std::unique_ptr<models::Model> build_for_inference(const Checkpoint& checkpoint, const std::string& origin,
                                                   at::Device device, bool keeps_half = false) {
  return build(checkpoint, origin, device, [&](const at::Tensor& stored, const nn::Parameter& wanted) {
    const at::ScalarType type = keeps_half && wanted.matmul_only ? stored.scalar_type() : at::kFloat;
    // a separate handle, so that caching weights in another type does not change `stored`
    return stored.to(device, type).detach();
  });
}

// Returns the size in bytes of a float32 copy of the half-precision parameters.
std::int64_t float_copy_bytes(const Checkpoint& checkpoint) {
  const std::int64_t elements = sum_over(checkpoint.tensors | std::views::values, [](const at::Tensor& tensor) {
    return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.numel() : 0;
  });
  return elements * static_cast<std::int64_t>(sizeof(float));
}

// Returns the named device, or the CPU if it is not available; resolve() reports that later.
at::Device available(const std::string& device) {
  try {
    return models::resolve(device);
  } catch (const UserError&) {
    return at::kCPU;
  }
}

}  // namespace

std::unique_ptr<models::Model> build_trainable(const Checkpoint& checkpoint, at::Device device) {
  auto model = build(checkpoint, "checkpoint", device, [&](const at::Tensor& stored, const nn::Parameter&) {
    return stored.to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  });
  for (nn::Parameter parameter : model->parameters().all()) {
    parameter.tensor.requires_grad_(true);
  }
  return model;
}

std::unique_ptr<models::Model> build_model(const Checkpoint& checkpoint, at::Device device,
                                           std::optional<at::ScalarType> decoding_type) {
  auto model = build_for_inference(checkpoint, "checkpoint", device);
  if (decoding_type) {
    model->parameters().cache_weights_in(*decoding_type);
  }
  return model;
}

OpenedModel open_model(const std::string& run_or_checkpoint, const OpenOptions& options) {
  OpenedModel opened;
  bool keeps_half = false;
  if (!options.device.empty()) {
    models::resolve(options.device);  // report an unavailable device before anything is read
  }
  const auto device_name = [&] {
    return options.device.empty() ? opened.checkpoint.config.train.device : options.device;
  };
  if (options.average > 1) {
    opened.name = fmt::format("{} (mean of {} checkpoints)", run_or_checkpoint, options.average);
    opened.checkpoint = average_checkpoints(run_or_checkpoint, options.average);
    opened.model = build_for_inference(opened.checkpoint, opened.name, available(device_name()));
  } else {
    open_first(run_or_checkpoint, [&](const std::filesystem::path& file, bool /*is_only*/) {
      opened.name = file.string();
      opened.checkpoint = read_unchecked(file);
      keeps_half = float_copy_bytes(opened.checkpoint) > options.largest_float_copy;
      opened.model = build_for_inference(opened.checkpoint, opened.name, available(device_name()), keeps_half);
    });
    verify(opened.checkpoint, opened.name);
  }
  config::TrainOptions& train = opened.checkpoint.config.train;
  train.precision = options.precision.value_or(train.precision);
  models::set_threads(options.threads > 0 ? options.threads : train.threads);
  opened.context = models::make_context(train, models::resolve(device_name()));
  if (keeps_half && !opened.context.compute_dtype) {
    opened.context.compute_dtype = at::kFloat;  // each matrix is converted when it is used
  } else if (options.writes && opened.context.compute_dtype) {
    opened.model->parameters().cache_weights_in(*opened.context.compute_dtype);
  }
  return opened;
}

}  // namespace headroom::store
