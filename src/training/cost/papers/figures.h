// What the files of the papers' tables share.
#pragma once

#include <string>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/core/exact.h"
#include "paper.h"

namespace headroom::cost::detail {

using Figures = std::vector<PaperFigure>;

Figures switchhead_figures();
Figures moa_figures();
Figures dcmha_figures();
Figures mgk_figures();

// The model of a shipped recipe, some keys changed.
config::ModelOptions model_of(const std::string& recipe, const std::vector<std::string>& changes = {});

PaperFigure count(std::string row, std::string quantity, std::string printed, Exact computed,
                  Digits digits = Digits::nearest);
PaperFigure ratio(std::string row, std::string quantity, std::string printed, double computed);
// `ours`: the nearest thing that this library counts; 0 for none.
PaperFigure underivable(std::string row, std::string quantity, std::string printed, std::string reason, Exact ours = 0);
// The same figure with what is to be known of it.
PaperFigure because(PaperFigure figure, std::string reason);

}  // namespace headroom::cost::detail
