// The lists of the papers, a file each.
#pragma once

#include "headroom/cost/papers.h"

namespace headroom::cost::detail {

// What is shown of trained models, each said once.
inline constexpr std::string_view kInside =
    "No command draws it yet; weights, choices and scores by name from Python: `docs/python.md`, `docs/tutorial.md`";
inline constexpr std::string_view kAnalyseMaps = kInside;
inline constexpr std::string_view kAnalyseExperts = kInside;
inline constexpr std::string_view kAnalyseInduction = kInside;
inline constexpr std::string_view kAnalyseRank = kInside;
inline constexpr std::string_view kAnalyseDiversity = kInside;
inline constexpr std::string_view kAnalyseComposition = kInside;
inline constexpr std::string_view kAnalyseCircuits = kInside;
inline constexpr std::string_view kAnalyseMixture = kInside;

std::span<const PaperItem> switchhead_draft_items();
std::span<const PaperItem> switchhead_items();
std::span<const PaperItem> moa_items();
std::span<const PaperItem> dcmha_items();
std::span<const PaperItem> mgk_items();

}  // namespace headroom::cost::detail
