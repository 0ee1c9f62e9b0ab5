// Fits all converted layers of a model together to the source's predictions.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "batches.h"
#include "fit.h"
#include "headroom/models/model.h"

namespace headroom::convert {

// Whether fit_together() can fit this model: a language model without memory.
bool has_joint_fit(const config::ModelOptions& model);

// Minimises the divergence from the source's predictions by AdamW over `parameters` of `model`, which are changed in
// place; gradients of all others are switched off. Where the divergence on held-out tokens has not become smaller, the
// starting values are restored.
Divergences fit_together(const models::Model& source, const models::Model& model,
                         const std::vector<at::Tensor>& parameters, const Batches& batches, const FitOptions& options);

}  // namespace headroom::convert
