#include <optional>
#include <unordered_set>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "listops.h"

namespace headroom::data::listops {
namespace {

// The distribution of expressions, and the default split sizes.
struct Distribution {
  std::size_t fewest_symbols = 0, most_symbols = 0;
  int fewest_levels = 1, most_levels = 1;
  std::uint64_t fewest_arguments = 2, most_arguments = 2;
  double operators = 0.0;  // probability that an argument is an operator
  std::int64_t train = 0, validation = 0;
};

constexpr Distribution kShort = {.fewest_symbols = 1,
                                 .most_symbols = 50,
                                 .fewest_levels = 2,
                                 .most_levels = 6,
                                 .fewest_arguments = 2,
                                 .most_arguments = 5,
                                 .operators = 0.3,
                                 .train = 1'000'000,
                                 .validation = 1000};
constexpr Distribution kLong = {.fewest_symbols = 500,
                                .most_symbols = 2000,
                                .fewest_levels = 1,
                                .most_levels = 10,
                                .fewest_arguments = 2,
                                .most_arguments = 10,
                                .operators = 0.25,
                                .train = 96'000,
                                .validation = 2000};

class Generator {
 public:
  Generator(const Distribution& distribution, std::uint64_t seed) : distribution_(distribution), random_(seed) {}

  // Draws a tree; returns false if it is too small or too large.
  bool draw(std::vector<std::uint16_t>& symbols) {
    symbols.clear();
    deepest_ = 0;
    return grow(symbols, 1) && symbols.size() >= distribution_.fewest_symbols &&
           deepest_ >= distribution_.fewest_levels;
  }

 private:
  // Appends a random subtree; returns false once the tree is too long.
  bool grow(std::vector<std::uint16_t>& symbols, int level) {
    deepest_ = std::max(deepest_, level);
    if (level == distribution_.most_levels || random_.uniform() >= distribution_.operators) {
      symbols.push_back(static_cast<std::uint16_t>(kDigit + random_.below(kClasses)));
      return symbols.size() <= distribution_.most_symbols;
    }
    symbols.push_back(static_cast<std::uint16_t>(kMin + random_.below(kSm - kMin + 1)));
    const std::uint64_t arguments = distribution_.fewest_arguments +
                                    random_.below(distribution_.most_arguments - distribution_.fewest_arguments + 1);
    for (std::uint64_t i = 0; i < arguments; ++i) {
      if (!grow(symbols, level + 1)) {
        return false;
      }
    }
    symbols.push_back(kEnd);
    return symbols.size() <= distribution_.most_symbols;
  }

  const Distribution& distribution_;
  Random random_;
  int deepest_ = 0;
};

// Hash for detecting duplicates. The probability of any collision among a million expressions is below 1e-7.
std::uint64_t hash_of(const std::vector<std::uint16_t>& symbols) {
  std::uint64_t hash = symbols.size();
  for (const std::uint16_t symbol : symbols) {
    hash = mix(hash, symbol);
  }
  return hash;
}

LabelledSequences make(const Distribution& distribution, std::uint64_t seed, std::int64_t count,
                       std::unordered_set<std::uint64_t>& seen) {
  constexpr std::int64_t kMostTries = 1'000'000, kOften = 1024, kQuick = 20'000'000;  // about a second's symbols
  Generator generator(distribution, seed);
  std::optional<Progress> progress;
  if (count > kQuick / static_cast<std::int64_t>(distribution.most_symbols)) {
    progress.emplace("listops", count, "example");
  }
  LabelledSequences made;
  std::vector<std::uint16_t> symbols;
  std::int64_t tries = 0;
  while (made.size() < count) {
    if (generator.draw(symbols) && seen.insert(hash_of(symbols)).second) {
      made.first.add(symbols);
      made.labels.push_back(evaluate(symbols));
      tries = 0;
    } else if (++tries == kMostTries) {
      user_error("data.generator: found only {} different expressions, need {}", seen.size(), count);
    }
    if ((made.size() + tries) % kOften == 0) {
      if (progress) {
        progress->update(made.size());
      }
      if (interrupted()) {
        throw InterruptedError(fmt::format("listops: interrupted after {} of {} examples", made.size(), count));
      }
    }
  }
  return made;
}

}  // namespace

Generated generate(const config::DataOptions& options, bool with_train) {
  if (options.generator != config::Generator::listops && options.generator != config::Generator::listops_long) {
    user_error("data.generator: {} does not generate ListOps", config::name_of(options.generator));
  }
  const Distribution& distribution = options.generator == config::Generator::listops ? kShort : kLong;
  const auto count = [](std::int64_t given, std::int64_t published) { return given > 0 ? given : published; };
  const std::uint64_t seed = mix(static_cast<std::uint64_t>(options.generator_seed), "listops");
  std::unordered_set<std::uint64_t> seen;
  Generated made;
  made.validation =
      make(distribution, mix(seed, "validation"), count(options.generated_validation, distribution.validation), seen);
  if (with_train) {
    made.train = make(distribution, mix(seed, "train"), count(options.generated_train, distribution.train), seen);
  }
  return made;
}

}  // namespace headroom::data::listops
