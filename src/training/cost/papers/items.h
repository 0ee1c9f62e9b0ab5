// The lists of the papers, a file each.
#pragma once

#include "papers.h"

namespace headroom::cost::detail {

// What is shown of trained models, each said once.
inline constexpr std::string_view kAnalyseMaps = "`headroom analyse RUN --what maps --out DIR`";
inline constexpr std::string_view kAnalyseExperts = "`headroom analyse RUN --what experts --data FILE --out DIR`";
inline constexpr std::string_view kAnalyseInduction =
    "`headroom analyse RUN --what induction,maps --out DIR`, which finds the heads and draws them";
inline constexpr std::string_view kAnalyseRank = "`headroom analyse RUN --what rank --data FILE --out DIR`";
inline constexpr std::string_view kAnalyseMapsAndRank = "`headroom analyse RUN --what maps,rank --data FILE --out DIR`";
inline constexpr std::string_view kAnalyseDiversity = "`headroom analyse RUN --what diversity --out DIR`";
inline constexpr std::string_view kAnalyseComposition =
    "`headroom analyse RUN --what composition --text TEXT --out DIR`";
inline constexpr std::string_view kAnalyseCompositionAndMaps =
    "`headroom analyse RUN --what composition,maps --text TEXT --out DIR`";
inline constexpr std::string_view kAnalyseCircuits = "`headroom analyse RUN --what circuits --text TEXT --out DIR`";
inline constexpr std::string_view kAnalyseMixture = "`headroom analyse RUN --what mixture --text TEXT --out DIR`";

std::span<const PaperItem> switchhead_draft_items();
std::span<const PaperItem> switchhead_items();
std::span<const PaperItem> moa_items();
std::span<const PaperItem> dcmha_items();
std::span<const PaperItem> mgk_items();

}  // namespace headroom::cost::detail
