// What advice says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "advise.h"

namespace headroom::compare {

// What a stage found; `preference`: why the one that is taken is, where trials leave it open: "longer runs want lower
// rates".
std::string stage_sentence(const Stage& stage, std::string_view preference);

// Numbers of the machine and the text that the others follow from.
struct Fitting {
  double rate = 0.0;         // tokens a second of the config as it was asked about, with its vocabulary
  double text_tokens = 0.0;  // of the training text, in the advised vocabulary
  double size_factor = 1.0;  // widths of the advised model, in those of the config
  double macs = 0.0;         // forward multiply-accumulates a token of the advised model
  bool size_kept = false, batch_kept = false;
};
std::vector<std::string> advice_sentences(const Advice& advice, const Fitting& fitting);

// As it was measured before its trials.
double tokens_per_second(const Arm& arm);

// "1.234 ± 0.005", or a dash; of an arm that diverged "diverged".
std::string score_text(const Round& round);

}  // namespace headroom::compare
