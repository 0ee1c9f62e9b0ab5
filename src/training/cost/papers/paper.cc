#include "paper.h"

#include "figures.h"
#include "headroom/core/error.h"

namespace headroom::cost {

std::vector<PaperFigure> paper_figures(std::string_view paper) {
  constexpr std::pair<std::string_view, detail::Figures (*)()> kPapers[] = {{"switchhead", detail::switchhead_figures},
                                                                            {"moa", detail::moa_figures},
                                                                            {"dcmha", detail::dcmha_figures},
                                                                            {"mgk", detail::mgk_figures}};
  for (const auto& [name, figures] : kPapers) {
    if (name == paper) {
      return figures();
    }
  }
  user_error("cost: --paper {}: unknown paper, expected switchhead, moa, dcmha or mgk", paper);
}

}  // namespace headroom::cost
