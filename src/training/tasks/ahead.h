// Batches prepared while the step before them computes.
#pragma once

#include <memory>

#include "task.h"

namespace headroom::tasks {

// The same batches and positions; each is made by another thread once the one before it has been handed out. An error
// comes from the next() that it belongs to.
std::unique_ptr<TrainingData> prepared_ahead(std::unique_ptr<TrainingData> data);

}  // namespace headroom::tasks
