// mixup (Zhang et al. 2018): examples and their labels mixed in pairs.
#pragma once

#include <cstdint>

#include "headroom/models/model.h"

namespace headroom::tasks {

// max(lambda, 1 - lambda) for lambda ~ Beta(alpha, alpha): a pair is the same in either order, so a row keeps the
// larger weight.
double mixup_lambda(double alpha, std::uint64_t seed);

// Row b of "images" becomes lambda * row b + (1 - lambda) * row b - 1; the first row is mixed with the last. Adds
// "other_label", the labels of the rows mixed in, and "label_share" [B], lambda (models/classifier.h).
void mix_rows(models::Batch& batch, double lambda, std::size_t threads);

}  // namespace headroom::tasks
