// How near translations are to reference translations by characters: chrF (Popović 2015) of a whole corpus.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace headroom::tasks {

// What the score of a corpus is computed from; the counts of its parts add up to its own.
struct ChrfCounts {
  static constexpr std::size_t kOrders = 6;
  // n-grams of characters, n from 1 to 6: those of the translations that are in their references, each counted at most
  // as often as it is there; all of the translations, where the reference has any of this length; of the references.
  std::array<std::int64_t, kOrders> right = {}, all = {}, reference = {};
};

// Characters are code points without blanks, as Python's str.split() sees these. Throws Error when there is not one
// reference for each translation.
ChrfCounts count_chrf(const std::vector<std::string>& translations, const std::vector<std::string>& references);

// 100 (1 + 4) P R / (4 P + R), P and R the means over n of the share of the translations' and the references' n-grams
// that are right; cased; equal to sacreBLEU's corpus_chrf with one reference ("chrF2").
double chrf_of(const ChrfCounts& counts);

}  // namespace headroom::tasks
