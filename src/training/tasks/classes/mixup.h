// mixup (Zhang et al. 2018): examples and their labels mixed in pairs.
#pragma once

#include <cstdint>

#include "headroom/models/model.h"

namespace headroom::tasks {

// lambda ~ Beta(alpha, alpha), and of lambda and 1 - lambda the larger one, so that a row's own part is the larger one:
// the pairs are the same.
double mixing_share(double alpha, std::uint64_t seed);

// Row b of "images" becomes share * row b + (1 - share) * row b - 1 (the last row's for the first one); the batch gets
// "other_label", the labels of these, and "label_share" [B], the share (models/classifier.h). By up to `threads`
// threads.
void mix_rows(models::Batch& batch, double share, std::size_t threads);

}  // namespace headroom::tasks
