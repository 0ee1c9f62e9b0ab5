#include "scores.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"

namespace headroom::tasks {
namespace {

constexpr std::size_t kOrders = std::tuple_size_v<decltype(BleuCounts::all)>;

using Ngrams = std::unordered_map<std::string, std::int64_t>;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_point(char c) {
  return c == '.' || c == ',';
}

std::vector<std::string> split_at_blanks(std::string_view text) {
  std::vector<std::string> tokens;
  std::string token;
  for (std::size_t i = 0; i <= text.size();) {
    const std::size_t blank = i == text.size() ? 1 : leading_blank(text.substr(i));
    if (blank == 0) {
      token += text[i++];
      continue;
    }
    if (!token.empty()) {
      tokens.push_back(std::exchange(token, {}));
    }
    i += blank;
  }
  return tokens;
}

bool is_ascii_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Works on bytes and without overlapping matches, like the regular expression used for the published scores: in "a-b-c"
// only the first hyphen is split.
std::string split_compounds(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool joins =
        i + 2 < text.size() && !is_ascii_blank(text[i]) && text[i + 1] == '-' && !is_ascii_blank(text[i + 2]);
    out += text[i];
    if (joins) {
      out += " ##AT##-##AT## ";
      out += text[i + 2];
    }
    i += joins ? 3 : 1;
  }
  return out;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// Inserts a space between adjacent characters that satisfy the two conditions, and puts `before` and `after` around the
// space.
template <class First, class Second>
std::string separate_pairs(std::string_view text, const First& first, const Second& second, std::string_view before,
                           std::string_view after) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && first(text[i]) && second(text[i + 1])) {
      out += before;
      out += text[i];
      out += ' ';
      out += text[++i];
      out += after;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Tokenises like mteval-v13a.pl. Works on bytes, because the script examines only ASCII characters.
std::vector<std::string> tokens_13a(std::string_view line) {
  std::string text = replaced(std::string(line), "<skipped>", "");
  text = replaced(std::move(text), "-\n", "");
  text = replaced(std::move(text), "\n", " ");
  text = replaced(std::move(text), "&quot;", "\"");
  text = replaced(std::move(text), "&amp;", "&");
  text = replaced(std::move(text), "&lt;", "<");
  text = replaced(std::move(text), "&gt;", ">");
  std::string apart = " ";
  for (const char c : text) {
    const bool symbol = (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
                        (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
    apart += symbol ? std::string{' ', c, ' '} : std::string(1, c);
  }
  apart += ' ';
  const auto no_digit = [](char c) { return !is_digit(c); };
  apart = separate_pairs(apart, no_digit, is_point, "", " ");
  apart = separate_pairs(apart, is_point, no_digit, " ", "");
  apart = separate_pairs(
      apart, is_digit, [](char c) { return c == '-'; }, "", " ");
  return split_at_blanks(apart);
}

Ngrams count_ngrams(const std::vector<std::string>& tokens, std::size_t order) {
  Ngrams counts;
  for (std::size_t begin = 0; begin + order <= tokens.size(); ++begin) {
    std::string key;
    for (std::size_t i = begin; i < begin + order; ++i) {
      key += tokens[i] + ' ';  // tokens contain no blanks
    }
    ++counts[key];
  }
  return counts;
}

void add_sentence(const std::vector<std::string>& translation, const std::vector<std::string>& reference,
                  BleuCounts& counts) {
  for (std::size_t order = 1; order <= kOrders; ++order) {
    const Ngrams wanted = count_ngrams(reference, order);
    for (const auto& [ngram, count] : count_ngrams(translation, order)) {
      const auto found = wanted.find(ngram);
      counts.all[order - 1] += count;
      counts.right[order - 1] += found == wanted.end() ? 0 : std::min(count, found->second);
    }
  }
}

}  // namespace

std::vector<std::string> bleu_tokens(std::string_view text, BleuTokens tokens) {
  return tokens == BleuTokens::mteval_13a
             ? tokens_13a(text)
             : split_at_blanks(tokens == BleuTokens::compounds ? split_compounds(text) : std::string(text));
}

BleuCounts count_bleu(const std::vector<std::string>& translations, const std::vector<std::string>& references,
                      BleuTokens tokens) {
  if (translations.size() != references.size()) {
    fail("bleu: each translation must have a reference, got {} and {}", translations.size(), references.size());
  }
  BleuCounts counts;
  for (std::size_t i = 0; i < translations.size(); ++i) {
    const auto translation = bleu_tokens(translations[i], tokens), reference = bleu_tokens(references[i], tokens);
    counts.tokens += std::ssize(translation);
    counts.reference_tokens += std::ssize(reference);
    add_sentence(translation, reference, counts);
  }
  return counts;
}

double bleu_of(const BleuCounts& counts, const BleuOptions& options) {
  if (counts.right[0] == 0) {
    return 0.0;
  }
  double log_sum = 0.0, smoothing = 1.0;
  for (std::size_t n = 0; n < kOrders; ++n) {
    if (counts.all[n] == 0) {
      return 0.0;
    }
    double right = static_cast<double>(counts.right[n]);
    if (counts.right[n] == 0 && options.smooth) {
      smoothing *= 2.0;
      right = 1.0 / smoothing;
    }
    log_sum += std::log(100.0 * right / static_cast<double>(counts.all[n]));
  }
  const double ratio = static_cast<double>(counts.reference_tokens) / static_cast<double>(counts.tokens);
  const double brevity_penalty = ratio > 1.0 ? std::exp(1.0 - ratio) : 1.0;
  return brevity_penalty * std::exp(log_sum / static_cast<double>(kOrders));
}

namespace {

using CharacterNgrams = std::unordered_map<std::string_view, std::int64_t>;

std::string without_blanks(std::string_view text) {
  std::string all;
  for (const std::string& word : bleu_tokens(text, BleuTokens::blanks)) {
    all += word;
  }
  return all;
}

// Returns the byte offsets of the characters in UTF-8 text, followed by its size.
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
  constexpr double kRecallWeight = 4.0;  // beta^2 with beta = 2
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
  return 100.0 * (1.0 + kRecallWeight) * precision * recall / (kRecallWeight * precision + recall);
}

}  // namespace headroom::tasks
