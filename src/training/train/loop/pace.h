// How often a run validates and writes checkpoints where its config leaves that to the run ("auto"): often enough that
// little is lost, and together in less than 2% of the time.
#pragma once

#include <cstdint>
#include <string>

#include "headroom/config/config.h"

namespace headroom::train {

// Steps between validations that each read so many rows of a training batch (EvaluationData::rows): a twentieth of the
// steps, or more where that would take more than 1.1% of the time; 0: only at the end. The same on every machine, so
// that runs of one config are validated at the same steps.
std::int64_t steps_between_validations(const config::Config& config, double rows);

// Steps between checkpoints of so many bytes, where a step takes so long: a tenth of the steps or those of eight
// minutes, or more where that would take more than 0.6% of the time; 0: only at the end.
std::int64_t steps_between_checkpoints(std::int64_t steps, double step_seconds, double bytes);

// What a run says of both at its beginning: "validates every 50 steps, writes a checkpoint every 100 and at the end".
std::string describe_pace(const config::TrainOptions& options);

}  // namespace headroom::train
