// What analyses found, as one page that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "analyse.h"

namespace headroom::inspect {

std::string render_page(const std::vector<Analysed>& all, const AnalyseRequest& request);

}  // namespace headroom::inspect
