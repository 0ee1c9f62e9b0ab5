#include "context.h"

#include <ATen/autocast_mode.h>

#include "headroom/core/error.h"
#include "headroom/ops/choice.h"
#include "watch.h"

namespace headroom::python {

nn::Context context_of(const Layer& layer, at::Device device, bool training, const std::string& implementation) {
  const config::AttentionOptions& attention = layer.model.attention;
  if (training && attention.prior_update == config::PriorUpdate::soft_e) {
    user_error(
        "model.attention.prior_update: soft_e, which measures its prior, is trained by the command headroom only");
  }
  nn::Context context;
  context.training = training;
  context.from_generator = training;
  context.implementation = ops::implementation_named(implementation);
  if (at::autocast::is_autocast_available(device.type()) && at::autocast::is_autocast_enabled(device.type())) {
    context.compute_dtype = at::autocast::get_autocast_dtype(device.type());
  }
  if (Watch* watch = Watch::current(); watch != nullptr) {
    context.observer = watch;
    context.scope = watch->scope();
  }
  return context;
}

}  // namespace headroom::python
