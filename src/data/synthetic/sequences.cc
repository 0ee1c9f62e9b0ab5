#include "sequences.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "run_text.h"

namespace headroom::data {
namespace {

using config::Synthetic;

constexpr std::int32_t kKeys = 64, kValues = 64;     // tokens 0 .. 63 are keys, 64 .. 127 values
constexpr std::int32_t kNoise = 128, kMarker = 129;  // neither
constexpr std::int32_t kCopied = 16;                 // different tokens that are copied
constexpr std::int32_t kPermutations = 120;          // of five elements
constexpr std::int64_t kOffsetStep = 3, kMostBits = 8;
// needles: tokens below 128 are text.
constexpr std::int32_t kAscii = 128, kNeedleKeys = 16, kFirstNeedleKey = 130;
constexpr std::int32_t kFirstNeedleValue = kFirstNeedleKey + kNeedleKeys;

// A row under construction.
struct Maker {
  Maker(std::int64_t with_length, std::uint64_t seed) : length(with_length), random(seed) {
    row.tokens.assign(static_cast<std::size_t>(length), kNoise);
    row.targets.assign(static_cast<std::size_t>(length), -1);
  }
  std::int32_t& token(std::int64_t i) { return row.tokens[static_cast<std::size_t>(i)]; }
  std::int32_t& target(std::int64_t i) { return row.targets[static_cast<std::size_t>(i)]; }
  std::int32_t below(std::int32_t n) { return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n))); }
  // Returns the first `count` of a random order of 0 .. n - 1.
  std::vector<std::int32_t> distinct(std::int64_t count, std::int64_t n) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      std::swap(all[i], all[i + random.below(all.size() - i)]);
    }
    all.resize(static_cast<std::size_t>(count));
    return all;
  }

  std::int64_t length;
  Random random;
  SyntheticRow row;
};

// Bit j of the answer is bit j of the token 1 + 3 j positions back: the answer needs `items` positions at once.
void make_lookup(Maker& m, std::int64_t items) {
  for (std::int64_t i = 0; i < m.length; ++i) {
    m.token(i) = m.below(1 << items);
    if (i >= 1 + kOffsetStep * (items - 1)) {
      std::int32_t answer = 0;
      for (std::int64_t j = 0; j < items; ++j) {
        answer |= m.token(i - 1 - kOffsetStep * j) & (1 << j);
      }
      m.target(i) = answer;
    }
  }
}

// Pairs of keys and values, then every key once more, in random order and places, with its value as target. With `gap`,
// a query follows its pair at this distance.
void make_recall(Maker& m, std::int64_t items, std::int64_t gap) {
  const std::vector<std::int32_t> keys = m.distinct(items, kKeys);
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < items; ++i) {
    values.push_back(kKeys + m.below(kValues));
    m.token(2 * i) = keys[static_cast<std::size_t>(i)];
    m.token(2 * i + 1) = values.back();
  }
  const std::vector<std::int32_t> places = m.distinct(items, (m.length - 2 * items) / 2);
  for (std::int64_t i = 0; i < items; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t place = gap > 0 ? 2 * i + gap : 2 * items + 2 * places[at];
    m.token(place) = keys[at];
    m.target(place) = values[at];
    m.token(place + 1) = values[at];
  }
}

// Items among noise, a marker, and then the items in their order (selective copying).
void make_copying(Maker& m, std::int64_t items) {
  std::vector<std::int32_t> places = m.distinct(items, m.length - items);
  std::ranges::sort(places);
  for (std::int64_t i = 0; i < items; ++i) {
    const std::int32_t item = m.below(kCopied);
    m.token(places[static_cast<std::size_t>(i)]) = item;
    m.target(m.length - items + i) = item;
    if (i + 1 < items) {
      m.token(m.length - items + i + 1) = item;
    }
  }
  m.token(m.length - items) = kMarker;
}

// Random tokens in which the marker occurs twice. At the second marker, the target is the token after the first.
void make_induction(Maker& m, std::int64_t gap) {
  for (std::int64_t i = 0; i < m.length; ++i) {
    m.token(i) = kKeys + m.below(kValues);
  }
  const std::int64_t last = m.length - 1;
  const std::int64_t first =
      gap > 0 ? last - gap : static_cast<std::int64_t>(m.random.below(static_cast<std::uint64_t>(last - 1)));
  m.token(first) = m.token(last) = kMarker;
  m.target(last) = m.token(first + 1);
}

// Two keys, each with `items` values, hidden in a text as pairs of tokens. Then the marker and one of the keys, with
// its values as targets, in order.
void make_needles(Maker& m, std::int64_t items, std::string_view text) {
  const std::size_t start = m.random.below(text.size() - static_cast<std::size_t>(m.length) + 1);
  for (std::int64_t i = 0; i < m.length; ++i) {
    const auto byte = static_cast<unsigned char>(text[start + static_cast<std::size_t>(i)]);
    m.token(i) = byte < kAscii ? byte : ' ';
  }
  const std::int64_t question = m.length - items - 1;
  const std::vector<std::int32_t> keys = m.distinct(2, kNeedleKeys), values = m.distinct(2 * items, kValues);
  std::vector<std::int32_t> places = m.distinct(2 * items, question / 2), whose = m.distinct(2 * items, 2 * items);
  std::ranges::sort(places);
  m.token(question) = kMarker;
  m.token(question + 1) = kFirstNeedleKey + keys[0];
  std::int64_t answered = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool asked = whose[i] < items;
    const std::int32_t value = kFirstNeedleValue + values[i];
    m.token(2 * places[i]) = kFirstNeedleKey + keys[asked ? 0 : 1];
    m.token(2 * places[i] + 1) = value;
    if (asked) {
      m.target(question + 1 + answered) = value;
      if (++answered < items) {
        m.token(question + 1 + answered) = value;
      }
    }
  }
}

// The targets are the parities of the bits so far.
void make_parity(Maker& m) {
  std::int32_t parity = 0;
  for (std::int64_t i = 0; i < m.length; ++i) {
    m.token(i) = m.below(2);
    m.target(i) = parity ^= m.token(i);
  }
}

using Permutation = std::array<int, 5>;

std::array<Permutation, kPermutations> all_permutations() {
  std::array<Permutation, kPermutations> all{};
  Permutation next = {0, 1, 2, 3, 4};
  for (Permutation& permutation : all) {
    permutation = next;
    std::next_permutation(next.begin(), next.end());
  }
  return all;
}

// The targets are the products of the permutations of five elements so far (the word problem of S5).
void make_permutations(Maker& m) {
  static const std::array<Permutation, kPermutations> kAll = all_permutations();
  Permutation product = kAll[0];
  for (std::int64_t i = 0; i < m.length; ++i) {
    m.token(i) = m.below(kPermutations);
    const Permutation& factor = kAll[static_cast<std::size_t>(m.token(i))];
    Permutation next{};
    for (std::size_t e = 0; e < next.size(); ++e) {
      next[e] = factor[static_cast<std::size_t>(product[e])];
    }
    product = next;
    m.target(i) = static_cast<std::int32_t>(std::distance(kAll.begin(), std::ranges::lower_bound(kAll, product)));
  }
}

struct Limits {
  std::int64_t usual, most;  // default and maximum number of items
  std::int64_t length;       // minimum row length for this number of items
  std::int64_t tokens;       // number of different tokens in rows
};

Limits limits_of(const config::DataOptions& options) {
  const std::int64_t n = options.synthetic_items, gap = options.synthetic_gap;
  const auto items = [n](std::int64_t usual) { return n == 0 ? usual : n; };
  switch (options.synthetic) {
    case Synthetic::lookup:
      return {4, kMostBits, 2 + kOffsetStep * (items(4) - 1), std::int64_t{1} << std::min(items(4), kMostBits)};
    case Synthetic::recall:
      return {8, kKeys, gap > 0 ? 2 * items(8) + gap : 4 * items(8), kNoise + 1};
    case Synthetic::copying:
      return {8, 256, 2 * items(8) + 1, kMarker + 1};
    case Synthetic::needles:
      return {4, kValues / 2, 5 * items(4) + 1, kFirstNeedleValue + kValues};
    case Synthetic::induction:
      return {1, 1, std::max<std::int64_t>(4, gap + 2), kMarker + 1};
    case Synthetic::permutations:
      return {1, 1, 1, kPermutations};
    default:
      return {1, 1, 1, 2};
  }
}

}  // namespace

std::int64_t synthetic_items(const config::DataOptions& options) {
  return options.synthetic_items == 0 ? limits_of(options).usual : options.synthetic_items;
}

void check_synthetic(const config::DataOptions& options, std::int64_t length, std::int64_t vocabulary) {
  const Limits limits = limits_of(options);
  const std::int64_t items = synthetic_items(options), gap = options.synthetic_gap;
  const std::string_view task = config::name_of(options.synthetic);
  if (items > limits.most) {
    user_error("data.synthetic_items: must be at most {} for \"{}\", got {}", limits.most, task, items);
  }
  const bool has_gap = options.synthetic == Synthetic::recall || options.synthetic == Synthetic::induction;
  if (gap > 0 && (!has_gap || gap < 2)) {
    user_error("data.synthetic_gap: must be {} for \"{}\", got {}", has_gap ? "0 or at least 2" : "0", task, gap);
  }
  if (options.synthetic == Synthetic::recall && gap > 0 && gap < 2 * items) {
    user_error("data.synthetic_gap: must be at least 2 * {} tokens, which the pairs of \"recall\" take, got {}", items,
               gap);
  }
  if (length < limits.length) {
    user_error("model.context_length: must be at least {} for \"{}\" with {} items, got {}", limits.length, task, items,
               length);
  }
  if (vocabulary < limits.tokens) {
    user_error("model.vocabulary_size: must be at least {} for \"{}\", got {}; 256 suits all tasks", limits.tokens,
               task, vocabulary);
  }
}

std::string synthetic_text(const config::DataOptions& options, Split split, std::int64_t length) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::string text;
  if (options.synthetic == Synthetic::needles) {
    const auto source = open_built_in_corpus(split);
    const std::size_t wanted = std::max(kBytes, static_cast<std::size_t>(length));
    for (std::string block; text.size() < wanted && source->next(block);) {
      text += block;
    }
    if (text.size() < static_cast<std::size_t>(length)) {
      user_error("model.context_length: must be at most the {} bytes of the text that hides needles, got {}",
                 text.size(), length);
    }
    text.resize(std::min(text.size(), wanted));
  }
  return text;
}

SyntheticRow synthetic_row(const config::DataOptions& options, Split split, std::int64_t row, std::int64_t length,
                           std::string_view text) {
  const std::uint64_t seed =
      mix(mix(static_cast<std::uint64_t>(options.generator_seed), config::name_of(options.synthetic)),
          split == Split::train ? "train" : "validation");
  Maker maker(length, mix(seed, static_cast<std::uint64_t>(row)));
  const std::int64_t items = synthetic_items(options);
  switch (options.synthetic) {
    case Synthetic::lookup:
      make_lookup(maker, items);
      break;
    case Synthetic::recall:
      make_recall(maker, items, options.synthetic_gap);
      break;
    case Synthetic::copying:
      make_copying(maker, items);
      break;
    case Synthetic::induction:
      make_induction(maker, options.synthetic_gap);
      break;
    case Synthetic::needles:
      make_needles(maker, items, text);
      break;
    case Synthetic::parity:
      make_parity(maker);
      break;
    case Synthetic::permutations:
      make_permutations(maker);
      break;
    case Synthetic::none:
      fail("synthetic sequences: data.synthetic is none");
  }
  return std::move(maker.row);
}

double chance_level(const config::DataOptions& options) {
  const auto items = static_cast<double>(synthetic_items(options));
  switch (options.synthetic) {
    case Synthetic::lookup:
      return std::pow(0.5, items);
    case Synthetic::recall:
      return 1.0 / items + (1.0 - 1.0 / items) / kValues;  // values may coincide
    case Synthetic::needles:
      return 0.5 / items;
    case Synthetic::copying:
      return 1.0 / kCopied;
    case Synthetic::induction:
      return 1.0 / kValues;
    case Synthetic::parity:
      return 0.5;
    case Synthetic::permutations:
      return 1.0 / kPermutations;
    case Synthetic::none:
      break;
  }
  return 0.0;
}

}  // namespace headroom::data
