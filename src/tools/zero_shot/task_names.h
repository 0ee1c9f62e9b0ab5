// The names of the benchmarks, for programs that do not link torch.
#pragma once

namespace headroom::zero_shot {

// In the order of zero_shot_tasks().
inline constexpr const char* kTaskNames[] = {"lambada",  "blimp",          "cbt",       "target_loss", "boolq",
                                             "copa",     "piqa",           "winograd",  "winogrande",  "arc_challenge",
                                             "arc_easy", "commonsense_qa", "hellaswag", "logiqa",      "openbook_qa",
                                             "race",     "sciq",           "siqa",      "composition"};

}  // namespace headroom::zero_shot
