#include "chrf.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "bleu.h"
#include "headroom/core/error.h"

namespace headroom::tasks {
namespace {

using CharacterNgrams = std::unordered_map<std::string_view, std::int64_t>;

std::string without_blanks(std::string_view text) {
  std::string all;
  for (const std::string& word : bleu_tokens(text, BleuTokens::blanks)) {
    all += word;
  }
  return all;
}

// Where the characters of UTF-8 text begin, and its end.
std::vector<std::size_t> character_places(std::string_view text) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U) {
      places.push_back(i);
    }
  }
  places.push_back(text.size());
  return places;
}

CharacterNgrams count_ngrams(std::string_view text, const std::vector<std::size_t>& places, std::size_t order) {
  CharacterNgrams counts;
  for (std::size_t i = 0; i + order < places.size(); ++i) {
    ++counts[text.substr(places[i], places[i + order] - places[i])];
  }
  return counts;
}

std::int64_t ngrams_in(const std::vector<std::size_t>& places, std::size_t order) {
  return std::max<std::int64_t>(std::ssize(places) - static_cast<std::int64_t>(order), 0);
}

}  // namespace

ChrfCounts count_chrf(const std::vector<std::string>& translations, const std::vector<std::string>& references) {
  if (translations.size() != references.size()) {
    fail("chrF: each translation must have a reference, got {} and {}", translations.size(), references.size());
  }
  ChrfCounts counts;
  for (std::size_t i = 0; i < translations.size(); ++i) {
    const std::string translation = without_blanks(translations[i]), reference = without_blanks(references[i]);
    const std::vector<std::size_t> ours = character_places(translation), theirs = character_places(reference);
    for (std::size_t order = 1; order <= ChrfCounts::kOrders; ++order) {
      const std::int64_t wanted = ngrams_in(theirs, order);
      counts.reference[order - 1] += wanted;
      if (wanted == 0) {
        continue;
      }
      counts.all[order - 1] += ngrams_in(ours, order);
      const CharacterNgrams there = count_ngrams(reference, theirs, order);
      for (const auto& [ngram, count] : count_ngrams(translation, ours, order)) {
        const auto found = there.find(ngram);
        counts.right[order - 1] += found == there.end() ? 0 : std::min(count, found->second);
      }
    }
  }
  return counts;
}

double chrf_of(const ChrfCounts& counts) {
  constexpr double kRecallWeighs = 4.0;  // beta^2, beta = 2
  double precision = 0.0, recall = 0.0, orders = 0.0;
  for (std::size_t n = 0; n < ChrfCounts::kOrders; ++n) {
    if (counts.all[n] > 0 && counts.reference[n] > 0) {
      precision += static_cast<double>(counts.right[n]) / static_cast<double>(counts.all[n]);
      recall += static_cast<double>(counts.right[n]) / static_cast<double>(counts.reference[n]);
      orders += 1.0;
    }
  }
  if (precision + recall == 0.0) {
    return 0.0;
  }
  precision /= orders;
  recall /= orders;
  return 100.0 * (1.0 + kRecallWeighs) * precision * recall / (kRecallWeighs * precision + recall);
}

}  // namespace headroom::tasks
