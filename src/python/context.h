// How a call from Python computes.
#pragma once

#include <string>

#include "headroom/nn/context.h"
#include "layer.h"

namespace headroom::python {

// Random numbers are torch's own; products run in autocast's type where it is on for that device; intermediate values
// are those that a Watch of this thread asks for.
nn::Context context_of(const Layer& layer, at::Device device, bool training, const std::string& implementation);

}  // namespace headroom::python
