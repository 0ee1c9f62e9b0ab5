// A step's sums of what all processes said, in an order that does not depend on how many there are.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layout.h"
#include "step_message.h"

namespace headroom::train {

// Losses and updates in the order of the step's micro-batches, all but the gradient norm. `buffers`: what is updated,
// by name.
Gathered add_reports(std::vector<StepMessage>& all, std::int64_t micro_batches,
                     const std::map<std::string, at::Tensor>& buffers);

// Of the squares that each process sent of its pieces, in the order of the parameters, whoever owns them: a sum for
// each.
double gradient_norm(const std::vector<StepMessage>& all, const Layout& layout);

}  // namespace headroom::train
