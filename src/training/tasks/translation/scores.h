// Corpus-level scores of translations against references: BLEU (Papineni et al. 2002) and chrF (Popović 2015).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::tasks {

enum class BleuTokens {
  mteval_13a,  // WMT's tokenisation, which separates punctuation from words: sacreBLEU's "13a"
  blanks,      // split at blanks, for text that is already tokenised: multi-bleu.perl
  // The same with compounds split: each hyphen between two characters becomes a token, so "rich-text" is
  // rich ##AT##-##AT## text, as in WMT14's published scores of German (Vaswani et al. 2017, MoA section 5.1).
  compounds,
};

struct BleuOptions {
  BleuTokens tokens = BleuTokens::mteval_13a;
  // true: the i-th order of n-grams without a match counts 1 / 2^i matches (sacreBLEU's "exp"); false: it makes the
  // score 0 (multi-bleu.perl).
  bool smooth = true;
};

// The counts from which BLEU is computed. Counts of parts of a corpus add up.
struct BleuCounts {
  std::array<std::int64_t, 4> right = {}, all = {};  // n-grams of the translations, n from 1 to 4
  std::int64_t tokens = 0, reference_tokens = 0;
};

struct Bleu {
  double score = 0.0;                     // 100 is a perfect match
  std::array<double, 4> precisions = {};  // of 1-grams to 4-grams, in per cent
  double brevity_penalty = 1.0;
  std::int64_t tokens = 0, reference_tokens = 0;
};

// 100 exp(min(0, 1 - r / c) + 1/4 sum_n log p_n): r and c are the tokens of references and translations; p_n is the
// fraction of the translations' n-grams that are in their references, each counted at most as often as there. Cased;
// equal to sacreBLEU's corpus_bleu with one reference. Throws Error unless each translation has a reference.
Bleu corpus_bleu(const std::vector<std::string>& translations, const std::vector<std::string>& references,
                 const BleuOptions& options = {});

// The same in two steps.
BleuCounts count_bleu(const std::vector<std::string>& translations, const std::vector<std::string>& references,
                      BleuTokens tokens);
Bleu bleu_of(const BleuCounts& counts, const BleuOptions& options = {});

std::vector<std::string> bleu_tokens(std::string_view text, BleuTokens tokens);

// The counts from which chrF is computed. Counts of parts of a corpus add up.
struct ChrfCounts {
  static constexpr std::size_t kOrders = 6;
  // Character n-grams, n from 1 to 6. right: of the translations that are in their references, each counted at most as
  // often as there; all: of the translations whose reference has n-grams of this order; reference: of the references.
  std::array<std::int64_t, kOrders> right = {}, all = {}, reference = {};
};

// Characters are code points, without those at which Python's str.split() splits. Throws Error unless each translation
// has a reference.
ChrfCounts count_chrf(const std::vector<std::string>& translations, const std::vector<std::string>& references);

// 100 (1 + 4) P R / (4 P + R): P and R are the means over n of right / all and right / reference. Cased; equal to
// sacreBLEU's corpus_chrf with one reference ("chrF2").
double chrf_of(const ChrfCounts& counts);

}  // namespace headroom::tasks
