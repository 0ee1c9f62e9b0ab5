// Compares the training losses of a run with those recorded in its recipe, to reveal problems early.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "history.h"

namespace headroom::train {

// The fractions of the steps after which losses are recorded, in the order of config::Config::recorded_losses.
inline constexpr std::array<double, 5> kRecordedShares = {0.05, 0.1, 0.25, 0.5, 1.0};

// If the last logged step is the first to reach one of these fractions, compares the mean training loss of the last 5%
// of the steps with the recorded one: "step 35 (5%): training loss 5.12, as recorded (5.13)". Otherwise returns "".
std::string compare_with_recorded(const std::vector<double>& recorded, const History& history, std::int64_t steps);

// Returns the comment that records the losses of a finished run: "# losses: 5.13 4.8 4.1 3.7 3.5". Empty if the run
// has logged too little.
std::string recorded_comment(const History& history, std::int64_t steps);

}  // namespace headroom::train
