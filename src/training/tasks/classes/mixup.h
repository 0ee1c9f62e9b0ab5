// mixup (Zhang et al. 2018): mixes examples and their labels in pairs.
#pragma once

#include <cstdint>

#include "headroom/models/model.h"

namespace headroom::tasks {

// Returns max(lambda, 1 - lambda) for lambda ~ Beta(alpha, alpha). Mixing is symmetric, so each row keeps the larger
// weight.
double mixup_lambda(double alpha, std::uint64_t seed);

// Replaces row b of "images" by lambda * row b + (1 - lambda) * row b - 1; the first row is mixed with the last. Adds
// "other_label", the labels of the rows mixed in, and "label_share" [B], lambda (models/classifier.h).
void mix_rows(models::Batch& batch, double lambda, std::size_t threads);

}  // namespace headroom::tasks
