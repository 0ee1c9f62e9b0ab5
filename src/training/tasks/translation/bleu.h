// How near translations are to reference translations: BLEU (Papineni et al. 2002) of a whole corpus.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::tasks {

enum class BleuTokens {
  mteval_13a,  // WMT's: punctuation apart from words, as sacreBLEU's "13a"
  blanks,      // what blanks separate: for text that is tokenised already, as multi-bleu.perl takes it
  // The same with compounds taken apart, each hyphen between two characters becoming a token of its own: "rich-text" is
  // rich ##AT##-##AT## text, as in WMT14's published scores of German (Vaswani et al. 2017, MoA section 5.1).
  compounds,
};

struct BleuOptions {
  BleuTokens tokens = BleuTokens::mteval_13a;
  // n-grams of which none is right count as 1 / 2^i of one, i counting such orders (sacreBLEU's "exp"); false: they
  // make the score 0 (multi-bleu.perl).
  bool smooth = true;
};

// What the score of a corpus is computed from; the counts of its parts add up to its own.
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

// 100 exp(min(0, 1 - r / c) + 1/4 sum_n log p_n), r and c the tokens of references and translations, p_n the share of
// the translations' n-grams that are in their references, each counted at most as often as it is there. Cased; equal
// to sacreBLEU's corpus_bleu with one reference. Throws Error when there is not one reference for each translation.
Bleu corpus_bleu(const std::vector<std::string>& translations, const std::vector<std::string>& references,
                 const BleuOptions& options = {});

// The same in two steps.
BleuCounts count_bleu(const std::vector<std::string>& translations, const std::vector<std::string>& references,
                      BleuTokens tokens);
Bleu bleu_of(const BleuCounts& counts, const BleuOptions& options = {});

// The tokens that BLEU compares.
std::vector<std::string> bleu_tokens(std::string_view text, BleuTokens tokens);

}  // namespace headroom::tasks
