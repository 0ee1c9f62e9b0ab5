#include <optional>
#include <unordered_set>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "listops.h"

namespace headroom::data::listops {
namespace {

// What trees are drawn from, and which of them are kept.
struct Law {
  std::size_t fewest_symbols = 0, most_symbols = 0;
  int fewest_levels = 1, most_levels = 1;
  std::uint64_t fewest_arguments = 2, most_arguments = 2;
  double operators = 0.0;  // probability of one where a digit could stand as well
  std::int64_t train = 0, validation = 0;
};

constexpr Law kShort = {.fewest_symbols = 1,
                        .most_symbols = 50,
                        .fewest_levels = 2,
                        .most_levels = 6,
                        .fewest_arguments = 2,
                        .most_arguments = 5,
                        .operators = 0.3,
                        .train = 1'000'000,
                        .validation = 1000};
constexpr Law kLong = {.fewest_symbols = 500,
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
  Generator(const Law& law, std::uint64_t seed) : law_(law), random_(seed) {}

  // A tree that is neither too small nor too large, or nothing: try again.
  bool draw(std::vector<std::uint16_t>& symbols) {
    symbols.clear();
    deepest_ = 0;
    return grow(symbols, 1) && symbols.size() >= law_.fewest_symbols && deepest_ >= law_.fewest_levels;
  }

 private:
  // False as soon as it is too long.
  bool grow(std::vector<std::uint16_t>& symbols, int level) {
    deepest_ = std::max(deepest_, level);
    if (level == law_.most_levels || random_.uniform() >= law_.operators) {
      symbols.push_back(static_cast<std::uint16_t>(kDigit + random_.below(kClasses)));
      return symbols.size() <= law_.most_symbols;
    }
    symbols.push_back(static_cast<std::uint16_t>(kMin + random_.below(kSm - kMin + 1)));
    const std::uint64_t arguments =
        law_.fewest_arguments + random_.below(law_.most_arguments - law_.fewest_arguments + 1);
    for (std::uint64_t i = 0; i < arguments; ++i) {
      if (!grow(symbols, level + 1)) {
        return false;
      }
    }
    symbols.push_back(kEnd);
    return symbols.size() <= law_.most_symbols;
  }

  const Law& law_;
  Random random_;
  int deepest_ = 0;
};

// Tells one expression from another; that two of a million are taken for one is less likely than 1 in 10^7.
std::uint64_t hash_of(const std::vector<std::uint16_t>& symbols) {
  std::uint64_t hash = symbols.size();
  for (const std::uint16_t symbol : symbols) {
    hash = mix(hash, symbol);
  }
  return hash;
}

LabelledSequences make(const Law& law, std::uint64_t seed, std::int64_t count,
                       std::unordered_set<std::uint64_t>& seen) {
  constexpr std::int64_t kMostTries = 1'000'000, kOften = 1024, kQuick = 20'000'000;  // symbols made in a second
  Generator generator(law, seed);
  std::optional<Progress> progress;
  if (count > kQuick / static_cast<std::int64_t>(law.most_symbols)) {
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
      user_error("data.generator: there are hardly more than {} different expressions, asked for {}", seen.size(),
                 count);
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
    user_error("data.generator: {} makes no ListOps expressions", config::name_of(options.generator));
  }
  const Law& law = options.generator == config::Generator::listops ? kShort : kLong;
  const auto count = [](std::int64_t given, std::int64_t papers) { return given > 0 ? given : papers; };
  const std::uint64_t seed = mix(static_cast<std::uint64_t>(options.generator_seed), "listops");
  std::unordered_set<std::uint64_t> seen;
  Generated made;
  made.validation = make(law, mix(seed, "validation"), count(options.generated_validation, law.validation), seen);
  if (with_train) {
    made.train = make(law, mix(seed, "train"), count(options.generated_train, law.train), seen);
  }
  return made;
}

}  // namespace headroom::data::listops
