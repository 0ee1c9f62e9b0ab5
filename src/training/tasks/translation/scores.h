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
  // Like `blanks`, with compounds split: each hyphen between two characters becomes a token, so "rich-text" is rich
  // ##AT##-##AT## text, as in published WMT14 scores for German (Vaswani et al. 2017, MoA section 5.1).
  compounds,
};

struct BleuOptions {
  BleuTokens tokens = BleuTokens::mteval_13a;
  // true: the i-th n-gram order without a match counts as 1 / 2^i matches (sacreBLEU's "exp"); false: any order without
  // a match makes the score 0 (multi-bleu.perl).
  bool smooth = true;
};

// Counts from which BLEU is computed; additive over parts of a corpus.
struct BleuCounts {
  std::array<std::int64_t, 4> right = {}, all = {};  // n-grams of the translations, n from 1 to 4
  std::int64_t tokens = 0, reference_tokens = 0;
};

// 100 exp(min(0, 1 - r / c) + 1/4 sum_n log p_n): r and c are the numbers of tokens in the references and the
// translations; p_n is the fraction of the translations' n-grams that match their references, with counts clipped to
// the reference's counts. Case-sensitive; equal to sacreBLEU's corpus_bleu with one reference.
double bleu_of(const BleuCounts& counts, const BleuOptions& options = {});
// Throws Error unless each translation has a reference.
BleuCounts count_bleu(const std::vector<std::string>& translations, const std::vector<std::string>& references,
                      BleuTokens tokens);

std::vector<std::string> bleu_tokens(std::string_view text, BleuTokens tokens);

// Counts from which chrF is computed; additive over parts of a corpus.
struct ChrfCounts {
  static constexpr std::size_t kOrders = 6;
  // Character n-grams, n from 1 to 6. right: n-grams of the translations that match their references, clipped to the
  // reference's counts; all: n-grams of translations whose reference has n-grams of this order; reference: n-grams of
  // the references.
  std::array<std::int64_t, kOrders> right = {}, all = {}, reference = {};
};

// Characters are code points other than Python's str.split() whitespace. Throws Error unless each translation has a
// reference.
ChrfCounts count_chrf(const std::vector<std::string>& translations, const std::vector<std::string>& references);

// 100 (1 + 4) P R / (4 P + R): P and R are the means over n of right / all and right / reference. Case-sensitive; equal
// to sacreBLEU's corpus_chrf with one reference ("chrF2").
double chrf_of(const ChrfCounts& counts);

}  // namespace headroom::tasks
